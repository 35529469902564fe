"""GPU load, power, temperature, clocks, throttling and presence, from NVML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml import Gpu
    from peerwatch_exporter.sources.gpu.readings import GpuIdentity, GpuReading

_SINGLE = {
    "gpu_utilization_ratio": "utilization_ratio",
    "gpu_memory_utilization_ratio": "memory_utilization_ratio",
    "gpu_memory_total_bytes": "memory_total_bytes",
    "gpu_memory_used_bytes": "memory_used_bytes",
    "gpu_memory_reserved_bytes": "memory_reserved_bytes",
    "gpu_power_watts": "power_watts",
    "gpu_power_limit_watts": "power_limit_watts",
    "gpu_energy_joules_total": "energy_joules",
    "gpu_performance_state": "performance_state",
    "gpu_temperature_margin_celsius": "temperature_margin_celsius",
}
# Metrics with one more label, whose values are the keys of the reading.
_KEYED = {
    "gpu_temperature_celsius": "temperatures_celsius",
    "gpu_clock_hertz": "clocks_hertz",
    "gpu_clock_max_hertz": "clocks_max_hertz",
    "gpu_clock_event_active": "clock_events",
    "gpu_throttle_seconds_total": "throttle_seconds",
}


@register(
    "gpu",
    "GPU load, memory, power, temperature, clocks, throttling and presence (NVML).",
    place="driver",
)
class GpuCollector:
    """Reads every GPU for itself: a lost one costs only its own values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._nvml = shared_nvml(sources)
        self._facts = sources.gpus

    def collect(self) -> Iterable[Family]:
        """Return the GPU families.

        Raises
        ------
        NoData
            If the node has no GPU or no driver.
        """
        gpus = self._nvml.gpus()
        self._facts.update_boards(self._nvml.seen())
        readings = [(gpu, _read(gpu)) for gpu in gpus]
        answered = [(gpu, reading) for gpu, reading in readings if reading is not None]
        yield self._info(self._nvml.seen())
        yield from self._presence(readings)
        for name, attribute in _SINGLE.items():
            yield _single(name, attribute, answered)
        for name, attribute in _KEYED.items():
            yield _keyed(name, attribute, answered)
        supported = family("exporter_source_supported")
        for gpu, reading in answered:
            supported.add_metric(("power_instant", gpu.labels[0]), reading.has_instant_power)
        yield supported
        errors = family("exporter_nvml_errors_total")
        for code, count in sorted(self._nvml.error_counts().items()):
            errors.add_metric([code], count)
        yield errors

    def _info(self, seen: Iterable[GpuIdentity]) -> Family:
        info = family("gpu_info")
        for board in seen:
            info.add_metric(
                [
                    str(board.index),
                    board.uuid,
                    board.name,
                    board.serial,
                    board.pci_bus_id,
                    board.vbios,
                    self._nvml.driver_version,
                    "" if board.numa_node is None else str(board.numa_node),
                ],
                1,
            )
        return info

    def _presence(self, readings: Sequence[tuple[Gpu, GpuReading | None]]) -> Iterable[Family]:
        present, lost, visible = (
            family(name) for name in ("gpu_present", "gpu_lost", "gpus_visible")
        )
        for gpu, reading in readings:
            present.add_metric(gpu.labels, reading is not None)
            lost.add_metric(gpu.labels, reading is None)
        listed = {gpu.identity.uuid for gpu, _ in readings}
        for board in self._nvml.seen():
            if board.uuid not in listed:
                present.add_metric([str(board.index), board.uuid], 0)
        visible.add_metric([], sum(reading is not None for _, reading in readings))
        return present, lost, visible


def _read(gpu: Gpu) -> GpuReading | None:
    try:
        return gpu.read()
    except GpuLostError:
        return None


def _single(name: str, attribute: str, readings: Iterable[tuple[Gpu, GpuReading]]) -> Family:
    result = family(name)
    for gpu, reading in readings:
        value = getattr(reading, attribute)
        if value is not None:
            result.add_metric(gpu.labels, value)
    return result


def _keyed(name: str, attribute: str, readings: Iterable[tuple[Gpu, GpuReading]]) -> Family:
    result = family(name)
    for gpu, reading in readings:
        for key, value in getattr(reading, attribute).items():
            result.add_metric((*gpu.labels, key), value)
    return result
