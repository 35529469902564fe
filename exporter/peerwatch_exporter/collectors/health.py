"""GPU memory errors, repairs, recovery actions and the number of GPUs there should be (NVML)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml
from peerwatch_exporter.sources.host.nvidia_gpus import NvidiaGpusOnPci
from peerwatch_exporter.sources.host.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import HealthReading

_GPU_LABELS = ("gpu", "uuid")

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_ecc_errors_total",
            "counter",
            "1",
            ("gpu", "uuid", "severity", "location", "scope"),
            "Memory errors found by ECC. Severity corrected does no harm by itself, uncorrected "
            "ends the job. Location is dram and sram; older GPUs have l1, l2, register_file, "
            "texture and cbu for sram; all where there is but one sum. Scope volatile counts from "
            "the last driver load, aggregate over the board's life.",
            "NVML_FI_DEV_ECC_* (3-28), nvmlDeviceGetMemoryErrorCounter",
        ),
    ),
    MetricSpec(
        "gpu_sram_ecc_threshold_exceeded",
        "gauge",
        "1",
        _GPU_LABELS,
        "1 if the on-chip memory had so many uncorrected errors that the board is to be replaced. "
        "Ampere and later; as root only.",
        "nvmlDeviceGetSramEccErrorStatus .bThresholdExceeded",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_remapped_rows",
        "gauge",
        "1",
        ("gpu", "uuid", "cause"),
        "Memory rows replaced by spare ones, by cause correctable or uncorrectable. Ampere and "
        "later.",
        "NVML_FI_DEV_REMAPPED_{COR,UNC} (142, 143), else nvmlDeviceGetRemappedRows",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_row_remap_pending",
        "gauge",
        "1",
        _GPU_LABELS,
        "1 if a row is to be replaced at the next reset: reset the GPU when its job has ended.",
        "NVML_FI_DEV_REMAPPED_PENDING (144), else nvmlDeviceGetRemappedRows",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_row_remap_failed",
        "gauge",
        "1",
        _GPU_LABELS,
        "1 if a row could not be replaced: take the GPU out of service and have it replaced.",
        "NVML_FI_DEV_REMAPPED_FAILURE (145), else nvmlDeviceGetRemappedRows",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_row_remap_banks",
        "gauge",
        "1",
        ("gpu", "uuid", "availability"),
        "Memory banks by the spare rows they have left: max, high, partial, low or none. The next "
        "bad row of a bank with none cannot be replaced.",
        "nvmlDeviceGetRowRemapperHistogram",
        hardware="Ampere",
    ),
    MetricSpec(
        "gpu_retired_pages",
        "gauge",
        "1",
        ("gpu", "uuid", "cause"),
        "Memory pages no longer used, by cause multiple_single_bit or double_bit. Before Ampere, "
        "which remaps rows instead.",
        "NVML_FI_DEV_RETIRED_{SBE,DBE} (29, 30)",
        hardware="before Ampere",
    ),
    MetricSpec(
        "gpu_page_retirement_pending",
        "gauge",
        "1",
        _GPU_LABELS,
        "1 if a bad page is still in use until the next reset. Before Ampere.",
        "NVML_FI_DEV_RETIRED_PENDING (31)",
        hardware="before Ampere",
    ),
    MetricSpec(
        "gpu_unrepairable_memory",
        "gauge",
        "1",
        _GPU_LABELS,
        "1 if memory is damaged beyond repair: have the board replaced. Hopper and later, with a "
        "driver of 590 or newer.",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        hardware="Hopper",
    ),
    MetricSpec(
        "gpu_repair_pending",
        "gauge",
        "1",
        ("gpu", "uuid", "unit"),
        "1 if the next reset repairs a unit: channel (memory) or tpc (compute). Ampere and later.",
        "nvmlDeviceGetRepairStatus",
        hardware="Ampere",
    ),
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_recovery_action",
            "gauge",
            "1",
            _GPU_LABELS,
            "What the driver wants done: 0 nothing, 1 GPU reset, 2 node reboot, 3 drain "
            "peer-to-peer traffic, 4 drain and reset, 5 recover the IMEX domain, 6 bus reset, 7 "
            "system reboot.",
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (230)",
        ),
        MetricSpec(
            "gpu_recovery_action_info",
            "gauge",
            "1",
            ("gpu", "uuid", "action"),
            "The same in words: none, gpu_reset, node_reboot, drain_p2p, drain_and_reset, "
            "recover_imex_domain, bus_reset, system_reboot, or unknown. Value is always 1.",
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (230)",
        ),
    ),
    MetricSpec(
        "gpu_fabric_state",
        "gauge",
        "1",
        _GPU_LABELS,
        "The GPU in its NVSwitch fabric: 0 has none, 1 not registered yet, 2 registering, 3 "
        "registered. Jobs over NVLink fail on a GPU that stays at 1 or 2: check the Fabric "
        "Manager.",
        "nvmlDeviceGetGpuFabricInfoV .state",
        "Hopper with NVSwitch",
    ),
    MetricSpec(
        "gpu_fabric_health",
        "gauge",
        "1",
        ("gpu", "uuid", "condition"),
        "1 while something is wrong with the GPU's place in the NVSwitch fabric: "
        "degraded_bandwidth, route_recovery, route_unhealthy, access_timeout_recovery, "
        "incorrect_configuration or manager_disconnected. Those the driver does not report are "
        "absent.",
        "nvmlDeviceGetGpuFabricInfoV .healthMask",
        "Hopper with NVSwitch",
    ),
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpus_expected",
            "gauge",
            "1",
            (),
            "GPUs that the node should have: the setting gpu.expected_count, else the most that "
            "the driver listed, or the PCIe bus showed, since the exporter started. GPUs passed "
            "through to virtual machines do not count. Compare with gpus_visible.",
            "setting gpu.expected_count, nvmlDeviceGetCount_v2, /sys/bus/pci/devices/<bdf>",
        ),
        MetricSpec(
            "gpus_configured",
            "gauge",
            "1",
            (),
            "GPUs that the node should have by the setting gpu.expected_count, which outranks what "
            "was seen before the exporter started; absent without the setting.",
            "setting gpu.expected_count",
        ),
    ),
)

_SINGLE = {
    "gpu_sram_ecc_threshold_exceeded": "sram_threshold_exceeded",
    "gpu_row_remap_pending": "row_remap_pending",
    "gpu_row_remap_failed": "row_remap_failed",
    "gpu_page_retirement_pending": "page_retirement_pending",
    "gpu_unrepairable_memory": "unrepairable_memory",
    "gpu_recovery_action": "recovery_action",
    "gpu_fabric_state": "fabric_state",
}
# Metrics with one more label, whose values are the keys of the reading.
_KEYED = {
    "gpu_remapped_rows": "remapped_rows",
    "gpu_row_remap_banks": "row_remap_banks",
    "gpu_retired_pages": "retired_pages",
    "gpu_repair_pending": "repairs_pending",
    "gpu_fabric_health": "fabric_health",
}
_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)


@register(
    "health",
    "GPU memory errors, remapped rows, repairs, NVLink fabric and recovery actions (NVML).",
    interval_seconds=10,
    process="driver",
    topic="GPU health",
    metrics=SPECS,
)
class HealthCollector:
    """Reads every GPU for itself: a lost one costs only its own values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # It imports pynvml, which the main process must not.
        from peerwatch_exporter.sources.gpu.nvml_health import HealthReader  # noqa: PLC0415

        self._nvml = shared_nvml(sources)
        self._reader = HealthReader(sources.monotonic)
        self._configured = config.gpu.expected_count
        self._on_pci = NvidiaGpusOnPci(Sysfs(sources.paths.sysfs))
        self._most_seen = 0

    def follow(self, config: ExporterConfig) -> None:
        """Expect as many GPUs as other settings say."""
        self._configured = config.gpu.expected_count

    def collect(self) -> Iterable[Family]:
        """Return the health families.

        A node that should have GPUs and has no driver still says how many it should have.

        Raises
        ------
        NoData
            If the node has no GPU and none is expected.
        """
        try:
            gpus = self._nvml.gpus()
        except NoData:
            if not self._expected():
                raise
            gpus = ()
        # All that the driver lists, also those that another process reads.
        self._most_seen = max(self._most_seen, self._nvml.count)
        readings = [(gpu, reading) for gpu in gpus if (reading := self._read(gpu)) is not None]
        expected = family("gpus_expected")
        expected.add_metric([], self._expected())
        configured = family("gpus_configured")
        if self._configured is not None:
            configured.add_metric([], self._configured)
        return [expected, configured, *_families(readings)]

    def _expected(self) -> int:
        if self._configured is not None:
            return self._configured
        return max(self._most_seen, self._on_pci.count())

    def _read(self, gpu: Gpu) -> HealthReading | None:
        try:
            return self._reader.read(gpu)
        except GpuLostError:
            return None


def _families(readings: Sequence[tuple[Gpu, HealthReading]]) -> Iterable[Family]:
    errors = family("gpu_ecc_errors_total")
    info = family("gpu_recovery_action_info")
    for gpu, reading in readings:
        for kind, count in reading.ecc_errors.items():
            errors.add_metric((*gpu.labels, *kind), count)
        action = reading.recovery_action
        if action is not None:
            word = _ACTIONS[action] if 0 <= action < len(_ACTIONS) else "unknown"
            info.add_metric((*gpu.labels, word), 1)
    yield from (errors, info)
    for name, attribute in _SINGLE.items():
        result = family(name)
        for gpu, reading in readings:
            value = getattr(reading, attribute)
            if value is not None:
                result.add_metric(gpu.labels, value)
        yield result
    for name, attribute in _KEYED.items():
        result = family(name)
        for gpu, reading in readings:
            for key, value in getattr(reading, attribute).items():
                result.add_metric((*gpu.labels, key), value)
        yield result
