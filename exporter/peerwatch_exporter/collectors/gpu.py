"""GPU load, power, temperature, clocks, throttling and presence, from NVML."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import PartialData
from peerwatch_exporter.sources.gpu.nvml_access import GpuLostError, shared_nvml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.gpu.nvml_gpu import Gpu
    from peerwatch_exporter.sources.gpu.readings import GpuIdentity, GpuReading

_GPU_LABELS = ("gpu", "uuid")

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_info",
            "gauge",
            "1",
            ("gpu", "uuid", "name", "serial", "pci_bus_id", "vbios", "driver", "numa_node"),
            "What board it is, of every board seen since the exporter started. numa_node is that "
            "of the board's own memory, where it has one (Grace). Value is always 1; join on "
            "(node, gpu).",
            "nvmlDeviceGet{UUID,Name,Serial,PciInfo,VbiosVersion,NumaNodeId}, "
            "nvmlSystemGetDriverVersion",
        ),
        MetricSpec(
            "gpus_visible",
            "gauge",
            "1",
            (),
            "GPUs that the driver lists and that answer. None while any is unreadable.",
            "nvmlDeviceGetCount_v2",
        ),
        MetricSpec(
            "gpu_present",
            "gauge",
            "1",
            _GPU_LABELS,
            "1 if the driver lists the GPU and it answers; 0 if it was seen since the exporter "
            "started and is gone, lost, or hangs who asks it (then "
            "exporter_collector_stuck_seconds rises). None where a fault of software keeps the "
            "GPU from being asked (gpu_unreadable).",
            "nvmlDeviceGetHandleByIndex_v2",
        ),
        MetricSpec(
            "gpu_unreadable",
            "gauge",
            "1",
            ("gpu", "uuid", "reason"),
            "1 while a fault of software keeps the GPU from being read, so that nobody knows "
            "whether it is there. reason is NVML's error (no_permission, function_not_found, ...), "
            "that of its Python binding (binding_*), or what became of the process that asks "
            "(crashed, bad_answer). gpu empty: all of them.",
            "nvmlDeviceGetHandleByIndex_v2, the driver process",
        ),
        MetricSpec(
            "gpu_lost",
            "gauge",
            "1",
            _GPU_LABELS,
            "1 if the driver says that the GPU has fallen off the bus or is otherwise lost.",
            "NVML_ERROR_GPU_IS_LOST",
        ),
        MetricSpec(
            "gpu_utilization_ratio",
            "gauge",
            "ratio",
            _GPU_LABELS,
            "Share of the time with a kernel running, 0 to 1 (utilization.gpu), mean of the last "
            "mean_seconds. It says nothing about how busy the kernel kept the GPU.",
            "nvmlDeviceGetUtilizationRates",
            swings=True,
        ),
        MetricSpec(
            "gpu_memory_utilization_ratio",
            "gauge",
            "ratio",
            _GPU_LABELS,
            "Share of the time in which memory was read or written, 0 to 1 (utilization.memory), "
            "mean of the last mean_seconds.",
            "nvmlDeviceGetUtilizationRates",
            swings=True,
        ),
        MetricSpec(
            "gpu_memory_total_bytes",
            "gauge",
            "bytes",
            _GPU_LABELS,
            "Framebuffer memory of the board.",
            "nvmlDeviceGetMemoryInfo_v2 .total",
        ),
        MetricSpec(
            "gpu_memory_used_bytes",
            "gauge",
            "bytes",
            _GPU_LABELS,
            "Framebuffer memory allocated by processes. Drivers without the v2 call count the "
            "reserved part in.",
            "nvmlDeviceGetMemoryInfo_v2 .used",
        ),
        MetricSpec(
            "gpu_memory_reserved_bytes",
            "gauge",
            "bytes",
            _GPU_LABELS,
            "Framebuffer memory that the driver and firmware keep for themselves.",
            "nvmlDeviceGetMemoryInfo_v2 .reserved",
        ),
        MetricSpec(
            "gpu_power_watts",
            "gauge",
            "watts",
            _GPU_LABELS,
            "Power drawn by the whole board, mean of the last mean_seconds; of the driver's own "
            "means of a second where it has no instantaneous value.",
            "NVML_FI_DEV_POWER_INSTANT (186), else nvmlDeviceGetPowerUsage",
            swings=True,
        ),
        MetricSpec(
            "gpu_power_limit_watts",
            "gauge",
            "watts",
            _GPU_LABELS,
            "Power limit that the driver enforces, the lowest of all that apply.",
            "nvmlDeviceGetEnforcedPowerLimit",
        ),
    ),
    MetricSpec(
        "gpu_energy_joules_total",
        "counter",
        "joules",
        _GPU_LABELS,
        "Energy used since the driver was loaded, read every 5 s; its rate over a minute or more "
        "is the mean power.",
        "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION (83)",
        hardware="Volta",
    ),
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_temperature_celsius",
            "gauge",
            "celsius",
            ("gpu", "uuid", "sensor"),
            "Temperature by sensor: core or memory.",
            "nvmlDeviceGetTemperatureV, NVML_FI_DEV_MEMORY_TEMP (82)",
        ),
        MetricSpec(
            "gpu_temperature_margin_celsius",
            "gauge",
            "celsius",
            _GPU_LABELS,
            "Degrees left until the GPU slows itself down; 0 or less while it does.",
            "nvmlDeviceGetMarginTemperature",
        ),
        MetricSpec(
            "gpu_clock_hertz",
            "gauge",
            "hertz",
            ("gpu", "uuid", "domain"),
            "Clock by domain, mean of the last mean_seconds: graphics, sm or memory.",
            "nvmlDeviceGetClockInfo",
            swings=True,
        ),
        MetricSpec(
            "gpu_clock_max_hertz",
            "gauge",
            "hertz",
            ("gpu", "uuid", "domain"),
            "Highest clock of the domain that the board allows.",
            "nvmlDeviceGetMaxClockInfo",
        ),
        MetricSpec(
            "gpu_performance_state",
            "gauge",
            "1",
            _GPU_LABELS,
            "Performance state: 0 is the fastest (P0), 15 the slowest.",
            "nvmlDeviceGetPerformanceState",
        ),
        MetricSpec(
            "gpu_clock_event_active",
            "gauge",
            "1",
            ("gpu", "uuid", "reason"),
            "1 while this reason holds the clocks down: idle, application_clocks, sw_power_cap, "
            "hw_slowdown, sync_boost, sw_thermal, hw_thermal, hw_power_brake, display_clocks.",
            "nvmlDeviceGetCurrentClocksEventReasons",
        ),
        MetricSpec(
            "gpu_throttle_seconds_total",
            "counter",
            "seconds",
            ("gpu", "uuid", "reason"),
            "Time for which this reason held the clocks down, counted by the driver, so nothing is "
            "missed between scrapes.",
            "NVML_FI_DEV_PERF_POLICY_* (74-79), NVML_FI_DEV_CLOCKS_EVENT_REASON_* (269-271)",
        ),
    ),
    MetricSpec(
        "exporter_nvml_errors_total",
        "counter",
        "1",
        ("code",),
        "Failed NVML calls by error code; values a GPU does not support are not counted.",
        "NVML return codes",
    ),
)

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


# Of a node with 16 GPUs, some 500.
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


def _single(name: str, attribute: str, readings: Iterable[tuple[Gpu, GpuReading]]) -> Family:
    result = family(name)
    value_of = attrgetter(attribute)
    result.rows = [
        (gpu.labels, value) for gpu, reading in readings if (value := value_of(reading)) is not None
    ]
    return result


def _keyed(name: str, attribute: str, readings: Iterable[tuple[Gpu, GpuReading]]) -> Family:
    result = family(name)
    value_of = attrgetter(attribute)
    # Plus 0: a bool becomes the number it stands for.
    result.rows = [
        (_labels(gpu.labels, key), value + 0)
        for gpu, reading in readings
        for key, value in value_of(reading).items()
    ]
    return result


@lru_cache(maxsize=_MOST_LABELS)
def _labels(gpu: tuple[str, str], key: str) -> tuple[str, ...]:
    """Return the same label values for a series each second, which makes it cheap further on."""
    return (*gpu, key)
