"""Who uses the GPUs: memory by process, instances of split GPUs, video units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.files.whole_file import read_whole
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu

_GPU = ("gpu", "uuid")
_INSTANCE = ("gpu", "uuid", "gpu_instance", "compute_instance")

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_process_memory_bytes",
            "gauge",
            "bytes",
            ("gpu", "uuid", "pid", "process"),
            "Framebuffer memory that a process holds, of the 16 that hold most on each GPU; what "
            "further ones hold together has an empty pid and the process name 'others'.",
            "nvmlDeviceGetComputeRunningProcesses, /proc/<pid>/comm",
        ),
        MetricSpec(
            "gpu_encoder_utilization_ratio",
            "gauge",
            "ratio",
            _GPU,
            "Share of the time in which the GPU encoded video, 0 to 1.",
            "nvmlDeviceGetEncoderUtilization",
        ),
        MetricSpec(
            "gpu_decoder_utilization_ratio",
            "gauge",
            "ratio",
            _GPU,
            "Share of the time in which the GPU decoded video, 0 to 1: data loaders for video.",
            "nvmlDeviceGetDecoderUtilization",
        ),
    ),
    *needing(
        "NVIDIA GPU with MIG",
        MetricSpec(
            "gpu_mig_instance_info",
            "gauge",
            "1",
            (*_INSTANCE, "mig_uuid", "profile"),
            "What instances a split GPU has; uuid is the GPU's. Value is always 1.",
            "nvmlDeviceGetMigDeviceHandleByIndex",
            not_drawn="GPUs in a training job are whole; for joins in queries by hand",
        ),
        MetricSpec(
            "gpu_mig_memory_total_bytes",
            "gauge",
            "bytes",
            _INSTANCE,
            "Framebuffer memory of the instance.",
            "nvmlDeviceGetMemoryInfo of the instance",
            not_drawn="GPUs in a training job are whole; for queries by hand",
        ),
        MetricSpec(
            "gpu_mig_memory_used_bytes",
            "gauge",
            "bytes",
            _INSTANCE,
            "Framebuffer memory of the instance that is taken.",
            "nvmlDeviceGetMemoryInfo of the instance",
            not_drawn="GPUs in a training job are whole; for queries by hand",
        ),
    ),
)

# Chosen: a rank, its helpers and what was forgotten are fewer; a pid is a new series for every job.
_MAX_PROCESSES = 16
_OTHERS = ("", "others")


@register(
    "gpu_use",
    "GPU memory by process, MIG instances, video encoder and decoder (NVML)",
    process="driver",
    interval_seconds=10,
    topic="GPU, NVLink, PCIe",
    metrics=SPECS,
)
class GpuUseCollector:
    """Reads every GPU for itself: a lost one costs only its own values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        # The main process, which makes none of these, need not load it.
        from peerwatch_exporter.sources.gpu.nvml_settings import read_use  # noqa: PLC0415

        self._read_use = read_use
        self._nvml = shared_nvml(sources)
        self._procfs = sources.paths.procfs

    def collect(self) -> Iterable[Family]:
        """Return the families of processes, video units and instances.

        Raises
        ------
        NoData
            If the node has no GPU, or none answers.
        """
        memory, encoder, decoder, info, total, used = (family(spec.name) for spec in SPECS)
        answered = False
        for gpu in self._nvml.gpus():
            try:
                use = self._read_use(gpu, self._nvml)
            except GpuLostError:
                continue
            answered = True
            self._add_processes(memory, gpu, use.process_bytes)
            if use.encoder_ratio is not None:
                encoder.add_metric(gpu.labels, use.encoder_ratio)
            if use.decoder_ratio is not None:
                decoder.add_metric(gpu.labels, use.decoder_ratio)
            for instance in use.instances:
                labels = (*gpu.labels, instance.gpu_instance, instance.compute_instance)
                info.add_metric((*labels, instance.uuid, instance.profile), 1)
                if instance.memory_total_bytes is not None:
                    total.add_metric(labels, instance.memory_total_bytes)
                if instance.memory_used_bytes is not None:
                    used.add_metric(labels, instance.memory_used_bytes)
        if not answered:
            raise NoData("No GPU answers.")
        return memory, encoder, decoder, info, total, used

    def _add_processes(self, memory: Family, gpu: Gpu, held: Mapping[int, int]) -> None:
        largest = sorted(held.items(), key=lambda item: (-item[1], item[0]))
        for pid, size in largest[:_MAX_PROCESSES]:
            memory.add_metric((*gpu.labels, str(pid), self._name(pid)), size)
        rest = largest[_MAX_PROCESSES:]
        if rest:
            memory.add_metric((*gpu.labels, *_OTHERS), sum(size for _, size in rest))

    def _name(self, pid: int) -> str:
        try:
            comm = read_whole(f"{self._procfs}/{pid}/comm")
        except OSError:
            # It has ended, or lives in a namespace that cannot be seen from here.
            return ""
        return comm.decode("utf-8", "replace").strip()
