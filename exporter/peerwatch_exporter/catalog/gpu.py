"""Metrics of what each GPU does, of what holds it back, and of whether it is there."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_GPU_LABELS = ("gpu", "uuid")
# What holds a GPU back, and what is compared over minutes: three values for each scrape of 15 s.
GPU_STATE_SECONDS = 5

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
            every_seconds=GPU_STATE_SECONDS,
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
        every_seconds=5,
    ),
    *needing(
        "NVIDIA GPU",
        MetricSpec(
            "gpu_performance_state",
            "gauge",
            "1",
            _GPU_LABELS,
            "Performance state: 0 is the fastest (P0), 15 the slowest.",
            "nvmlDeviceGetPerformanceState",
            every_seconds=GPU_STATE_SECONDS,
        ),
        MetricSpec(
            "gpu_temperature_margin_celsius",
            "gauge",
            "celsius",
            _GPU_LABELS,
            "Degrees left until the GPU slows itself down; 0 or less while it does.",
            "nvmlDeviceGetMarginTemperature",
            every_seconds=GPU_STATE_SECONDS,
        ),
        MetricSpec(
            "gpu_temperature_celsius",
            "gauge",
            "celsius",
            ("gpu", "uuid", "sensor"),
            "Temperature by sensor: core or memory.",
            "nvmlDeviceGetTemperatureV, NVML_FI_DEV_MEMORY_TEMP (82)",
            every_seconds=GPU_STATE_SECONDS,
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
            every_seconds=GPU_STATE_SECONDS,
        ),
        MetricSpec(
            "gpu_clock_event_active",
            "gauge",
            "1",
            ("gpu", "uuid", "reason"),
            "1 while this reason holds the clocks down: idle, application_clocks, sw_power_cap, "
            "hw_slowdown, sync_boost, sw_thermal, hw_thermal, hw_power_brake, display_clocks.",
            "nvmlDeviceGetCurrentClocksEventReasons",
            every_seconds=GPU_STATE_SECONDS,
        ),
        MetricSpec(
            "gpu_throttle_seconds_total",
            "counter",
            "seconds",
            ("gpu", "uuid", "reason"),
            "Time for which this reason held the clocks down, counted by the driver, so nothing is "
            "missed between scrapes.",
            "NVML_FI_DEV_PERF_POLICY_* (74-79), NVML_FI_DEV_CLOCKS_EVENT_REASON_* (269-271)",
            every_seconds=GPU_STATE_SECONDS,
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
