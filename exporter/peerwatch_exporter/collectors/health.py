"""GPU memory errors, repairs, recovery actions and the number of GPUs there should be (NVML)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml import Gpu
    from peerwatch_exporter.sources.gpu.readings import HealthReading

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
    place="driver",
)
class HealthCollector:
    """Reads every GPU for itself: a lost one costs only its own values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        # It imports pynvml, which the main process must not.
        from peerwatch_exporter.sources.gpu.nvml_health import HealthReader  # noqa: PLC0415

        self._nvml = shared_nvml(sources)
        self._reader = HealthReader(sources.monotonic)
        self._configured = config.gpu.expected_count
        self._most_seen = 0

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
            if not self._configured and not self._most_seen:
                raise
            gpus = ()
        # All that the driver lists, also those that another process reads.
        self._most_seen = max(self._most_seen, self._nvml.count)
        expected = family("gpus_expected")
        expected.add_metric([], self._most_seen if self._configured is None else self._configured)
        readings = [(gpu, reading) for gpu in gpus if (reading := self._read(gpu)) is not None]
        return [expected, *_families(readings)]

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
