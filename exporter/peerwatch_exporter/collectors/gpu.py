"""GPU load, power, temperature, clocks, throttling and presence, from NVML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.catalog import family, place_in
from peerwatch_exporter.catalog.gpu import GPU_STATE_SECONDS, SPECS
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml
from peerwatch_exporter.sources.host.rarely import Rarely

if TYPE_CHECKING:
    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.identity import GpuIdentity
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import GpuReading, GpuState

    # The state of each GPU that answers, and the families of all of them.
    _States = tuple[Mapping[tuple[str, str], GpuState], Sequence[Family]]

_Labels = tuple[str, str]

_SINGLE = {
    "gpu_utilization_ratio": "utilization_ratio",
    "gpu_memory_utilization_ratio": "memory_utilization_ratio",
    "gpu_memory_total_bytes": "memory_total_bytes",
    "gpu_memory_used_bytes": "memory_used_bytes",
    "gpu_memory_reserved_bytes": "memory_reserved_bytes",
    "gpu_power_watts": "power_watts",
    "gpu_energy_joules_total": "energy_joules",
}
_SINGLE_STATES = {
    "gpu_power_limit_watts": "power_limit_watts",
    "gpu_performance_state": "performance_state",
    "gpu_temperature_margin_celsius": "temperature_margin_celsius",
}
# Metrics with one more label, whose values are the keys of the state.
_KEYED_STATES = {
    "gpu_temperature_celsius": "temperatures_celsius",
    "gpu_clock_max_hertz": "clocks_max_hertz",
    "gpu_clock_event_active": "clock_events",
    "gpu_throttle_seconds_total": "throttle_seconds",
}


_PLACE = place_in(SPECS)
# Of a node with 16 GPUs, some 500; room for eight times as many.
_MOST_LABELS = 4096


class UnreadableGpus(PartialData):
    """Software keeps some GPUs from being read."""

    error_class = "gpu_unreadable"


@register(
    "gpu",
    "GPU load, memory, power, temperature, clocks, throttling and presence (NVML).",
    process="driver",
    topic="GPU, NVLink, PCIe",
    metrics=SPECS,
)
class GpuCollector:
    """Reads every GPU for itself: a lost one costs only its own values."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._nvml = shared_nvml(sources)
        self._facts = sources.gpus
        self._states: Rarely[_States] = Rarely(GPU_STATE_SECONDS, sources.monotonic)

    def collect(self) -> Iterable[Family]:
        """Return the GPU families.

        Raises
        ------
        NoData
            If the node has no GPU or no driver.
        UnreadableGpus
            At the end, if some GPUs could not be opened.
        """
        gpus = self._nvml.gpus()
        self._facts.update_boards(self._nvml.seen())
        readings = [(gpu, _read(gpu)) for gpu in gpus]
        answered = [gpu for gpu, reading in readings if reading is not None]
        states, state_families = self._states(lambda: _states_of(answered), *answered)
        # One may be lost between the two.
        readings = [(gpu, reading if gpu.labels in states else None) for gpu, reading in readings]
        found = [(gpu, reading) for gpu, reading in readings if reading is not None]
        yield self._info(self._nvml.seen())
        yield from self._presence(readings)
        now = [
            _single(name, [(gpu.labels, getattr(reading, attribute)) for gpu, reading in found])
            for name, attribute in _SINGLE.items()
        ]
        clocks = _clocks((gpu.labels, reading, states[gpu.labels]) for gpu, reading in found)
        yield from sorted((*now, *state_families, clocks), key=_PLACE)
        supported = family("exporter_source_supported")
        for gpu, reading in found:
            supported.add_metric(("power_instant", gpu.labels[0]), reading.has_instant_power)
        yield supported
        errors = family("exporter_nvml_errors_total")
        for code, count in sorted(self._nvml.error_counts().items()):
            errors.add_metric([code], count)
        yield errors
        refused = [f"{gpu.identity.index} ({gpu.unreadable})" for gpu in gpus if gpu.unreadable]
        if refused:
            raise UnreadableGpus(
                f"GPUs that the driver lists and does not open: {', '.join(refused)}. See who may "
                "use /dev/nvidia* (device cgroup, container runtime) and the driver's version."
            )

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
        present, lost, visible, unreadable = (
            family(name) for name in ("gpu_present", "gpu_lost", "gpus_visible", "gpu_unreadable")
        )
        for gpu, reading in readings:
            if gpu.unreadable is None:
                present.add_metric(gpu.labels, reading is not None)
                lost.add_metric(gpu.labels, reading is None)
            else:
                unreadable.add_metric((*gpu.labels, gpu.unreadable), 1)
        listed = {gpu.identity.key for gpu, _ in readings}
        for board in self._nvml.seen():
            if board.key not in listed:
                present.add_metric([str(board.index), board.uuid], 0)
        if not unreadable.rows:
            visible.add_metric([], sum(reading is not None for _, reading in readings))
        return present, lost, visible, unreadable


def _read(gpu: Gpu) -> GpuReading | None:
    try:
        return gpu.read()
    except GpuLostError:
        return None


def _states_of(gpus: Iterable[Gpu]) -> _States:
    """Return the state of each GPU that answers, and the families of all of them."""
    states: dict[_Labels, GpuState] = {}
    for gpu in gpus:
        with suppress(GpuLostError):
            states[gpu.labels] = gpu.read_state()
    return states, [
        *(_single(name, _values(states, value)) for name, value in _SINGLE_STATES.items()),
        *(_keyed(name, _values(states, value)) for name, value in _KEYED_STATES.items()),
    ]


def _values(states: Mapping[_Labels, GpuState], attribute: str) -> Iterable[tuple[_Labels, Any]]:
    value_of = attrgetter(attribute)
    return ((labels, value_of(state)) for labels, state in states.items())


def _single(name: str, values: Iterable[tuple[_Labels, float | None]]) -> Family:
    result = family(name)
    result.rows = [(labels, value) for labels, value in values if value is not None]
    return result


def _keyed(name: str, values: Iterable[tuple[_Labels, Mapping[str, float]]]) -> Family:
    result = family(name)
    # Plus 0: a bool becomes the number it stands for.
    result.rows = [
        (_labels(labels, key), value + 0)
        for labels, found in values
        for key, value in found.items()
    ]
    return result


def _clocks(readings: Iterable[tuple[_Labels, GpuReading, GpuState]]) -> Family:
    """Return the clocks; only that of the multiprocessors was read now."""
    result = family("gpu_clock_hertz")
    for labels, reading, state in readings:
        for domain, value in (
            ("graphics", state.graphics_clock_hertz),
            ("sm", reading.sm_clock_hertz),
            ("memory", state.memory_clock_hertz),
        ):
            if value is not None:
                result.rows.append((_labels(labels, domain), value))
    return result


@lru_cache(maxsize=_MOST_LABELS)
def _labels(gpu: _Labels, key: str) -> tuple[str, ...]:
    """Return the same label values for a series each second, which makes it cheap further on."""
    return (*gpu, key)
