"""Activity of a GPU's units over the time between two runs (NVML GPM, Hopper and later)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family, place_in
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import ActivityDetails, ActivityReading

_Labels = tuple[str, str]
_GPU_LABELS = ("gpu", "uuid")
_WINDOW = (
    "Mean of the last mean_seconds, of windows of gpu_gpm_window_seconds, 0 to 1. Hopper and "
    "later, without MIG; of other GPUs from DCGM (dcgm.enabled), in windows of 1 s."
)

# Of what no detection metric compares: drawn from scrapes of 15 s (docs/exporter.md).
_DETAILS_SECONDS = 5


def _ratio(
    name: str,
    what: str,
    number: str,
    labels: tuple[str, ...] = _GPU_LABELS,
    every_seconds: float = 0,
) -> MetricSpec:
    return MetricSpec(
        name,
        "gauge",
        "ratio",
        labels,
        f"{what} {_WINDOW}",
        f"nvmlGpmMetricsGet {number}",
        "Hopper",
        swings=True,
        every_seconds=every_seconds,
    )


SPECS = (
    _ratio(
        "gpu_graphics_active_ratio",
        "Share of time with any compute or graphics work on the GPU.",
        "GRAPHICS_UTIL (1)",
    ),
    _ratio(
        "gpu_sm_active_ratio",
        "Share of the streaming multiprocessors that were busy.",
        "SM_UTIL (2)",
        every_seconds=_DETAILS_SECONDS,
    ),
    _ratio(
        "gpu_sm_occupancy_ratio",
        "Warps that were resident, of those that fit.",
        "SM_OCCUPANCY (3)",
        every_seconds=_DETAILS_SECONDS,
    ),
    _ratio(
        "gpu_tensor_active_ratio",
        "Share of time with work in the tensor cores: the nearest to how fast training runs.",
        "ANY_TENSOR_UTIL (5)",
    ),
    _ratio(
        "gpu_dram_active_ratio",
        "Memory bandwidth used, of what there is.",
        "DRAM_BW_UTIL (10)",
        every_seconds=_DETAILS_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_transmit_bytes_per_second",
        "gauge",
        "bytes per second",
        _GPU_LABELS,
        "What the GPU sent over PCIe, mean of the last mean_seconds: for drivers without the "
        "counter gpu_pcie_transmit_bytes_total.",
        "nvmlGpmMetricsGet PCIE_TX_PER_SEC (20)",
        "Hopper",
        swings=True,
        every_seconds=_DETAILS_SECONDS,
    ),
    MetricSpec(
        "gpu_pcie_receive_bytes_per_second",
        "gauge",
        "bytes per second",
        _GPU_LABELS,
        "What the GPU received over PCIe, mean of the last mean_seconds: for drivers without the "
        "counter gpu_pcie_receive_bytes_total.",
        "nvmlGpmMetricsGet PCIE_RX_PER_SEC (21)",
        "Hopper",
        swings=True,
        every_seconds=_DETAILS_SECONDS,
    ),
    _ratio(
        "gpu_pipe_active_ratio",
        "Share of time with work in a pipe other than tensor: fp64, fp32, fp16 or int.",
        "FP64_UTIL, FP32_UTIL, FP16_UTIL (11-13), INTEGER_UTIL (4)",
        (*_GPU_LABELS, "pipe"),
        every_seconds=_DETAILS_SECONDS,
    ),
    MetricSpec(
        "gpu_gpm_window_seconds",
        "gauge",
        "seconds",
        _GPU_LABELS,
        "Time between the two samples that the activity ratios are the mean of.",
        "nvmlGpmSampleGet",
        hardware="Hopper",
        not_drawn="says what the activity ratios are the mean of",
    ),
)

_PLACE = place_in(SPECS)
_RATIOS = {
    "graphics": "gpu_graphics_active_ratio",
    "tensor": "gpu_tensor_active_ratio",
}
_DETAILED_RATIOS = {
    "sm": "gpu_sm_active_ratio",
    "sm_occupancy": "gpu_sm_occupancy_ratio",
    "dram": "gpu_dram_active_ratio",
}
_RATES = {
    "transmit": "gpu_pcie_transmit_bytes_per_second",
    "receive": "gpu_pcie_receive_bytes_per_second",
}


@register(
    "gpm",
    "GPU tensor, SM, memory and pipe activity in the last second (NVML GPM, Hopper on).",
    process="driver",
    topic="GPU activity",
    metrics=SPECS,
)
class GpmCollector:
    """Compares two samples per GPU: the first run takes one, every later one has values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        # It imports pynvml, which the main process must not.
        from peerwatch_exporter.sources.gpu.nvml_gpm import GpmSampler  # noqa: PLC0415

        self._nvml = shared_nvml(sources)
        self._sampler = GpmSampler(self._nvml, sources.monotonic)
        self._details: list[tuple[_Labels, ActivityDetails]] = []
        self._detailed: Sequence[Family] = ()

    def collect(self) -> Iterable[Family]:
        """Return the activity families.

        Raises
        ------
        NoData
            If the node has no GPU.
        """
        gpus = self._nvml.gpus()
        self._sampler.keep_only({gpu.identity.key for gpu in gpus})
        # One GPU after the other: GPM calls for several at once have been seen to crash.
        answers = [(gpu, self._read(gpu)) for gpu in gpus]
        supported = family("exporter_source_supported")
        for gpu, answer in answers:
            if gpu.answers:
                supported.add_metric(("gpm", gpu.labels[0]), answer is not None)
        readings = [(gpu.labels, answer) for gpu, answer in answers if answer is not None]
        details = [(labels, reading.details) for labels, reading in readings]
        # They stay for seconds; the same families are cheap for whoever takes them.
        if details != self._details:
            self._details, self._detailed = details, _detailed_families(details)
        return [supported, *sorted((*_families(readings), *self._detailed), key=_PLACE)]

    def _read(self, gpu: Gpu) -> ActivityReading | None:
        try:
            return self._sampler.read(gpu)
        except GpuLostError:
            return None


def _families(readings: Sequence[tuple[_Labels, ActivityReading]]) -> Iterable[Family]:
    families = {name: family(metric) for name, metric in _RATIOS.items()}
    window = family("gpu_gpm_window_seconds")
    for labels, reading in readings:
        for name, ratio in reading.ratios.items():
            families[name].add_metric(labels, ratio)
        if reading.window_seconds is not None:
            window.add_metric(labels, reading.window_seconds)
    return [*families.values(), window]


def _detailed_families(readings: Sequence[tuple[_Labels, ActivityDetails]]) -> Sequence[Family]:
    families = {name: family(metric) for name, metric in _DETAILED_RATIOS.items()}
    rates = {name: family(metric) for name, metric in _RATES.items()}
    pipes = family("gpu_pipe_active_ratio")
    for labels, reading in readings:
        for name, ratio in reading.ratios.items():
            families[name].add_metric(labels, ratio)
        for name, rate in reading.pcie_bytes_per_second.items():
            rates[name].add_metric(labels, rate)
        for pipe, ratio in reading.pipes.items():
            pipes.add_metric((*labels, pipe), ratio)
    return [*families.values(), *rates.values(), pipes]
