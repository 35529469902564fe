"""GPU, NVLink and PCIe metrics: one label pair (gpu, uuid), facts only on ``gpu_info``."""

from __future__ import annotations

from peerwatch_exporter.catalog.spec import MetricSpec

# The index alone would splice two boards into one history after a replacement.
_GPU = ("gpu", "uuid")
_LINK = ("gpu", "uuid", "link")

_CORE: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_info",
        "gauge",
        "1",
        ("gpu", "uuid", "name", "serial", "pci_bus_id", "vbios", "driver"),
        "What board it is. Value is always 1; join on (node, gpu).",
        "nvmlDeviceGet{UUID,Name,Serial,PciInfo,VbiosVersion}, nvmlSystemGetDriverVersion",
    ),
    MetricSpec(
        "gpu_visible_count",
        "gauge",
        "1",
        (),
        "GPUs that the driver lists and that answer.",
        "nvmlDeviceGetCount_v2",
    ),
    MetricSpec(
        "gpu_present",
        "gauge",
        "1",
        _GPU,
        "1 if the GPU answers; 0 if it was seen since the exporter started and is gone or lost.",
        "nvmlDeviceGetHandleByIndex_v2",
    ),
    MetricSpec(
        "gpu_lost",
        "gauge",
        "1",
        _GPU,
        "1 if the driver says that the GPU has fallen off the bus or is otherwise lost.",
        "NVML_ERROR_GPU_IS_LOST",
    ),
    MetricSpec(
        "gpu_utilization_ratio",
        "gauge",
        "ratio",
        _GPU,
        "Share of the last sample period with a kernel running, 0 to 1 (utilization.gpu). It says "
        "nothing about how busy the kernel kept the GPU.",
        "nvmlDeviceGetUtilizationRates",
    ),
    MetricSpec(
        "gpu_memory_utilization_ratio",
        "gauge",
        "ratio",
        _GPU,
        "Share of the last sample period in which memory was read or written, 0 to 1 "
        "(utilization.memory).",
        "nvmlDeviceGetUtilizationRates",
    ),
    MetricSpec(
        "gpu_memory_total_bytes",
        "gauge",
        "bytes",
        _GPU,
        "Framebuffer memory of the board.",
        "nvmlDeviceGetMemoryInfo_v2 .total",
    ),
    MetricSpec(
        "gpu_memory_used_bytes",
        "gauge",
        "bytes",
        _GPU,
        "Framebuffer memory allocated by processes. Drivers without the v2 call count the "
        "reserved part in.",
        "nvmlDeviceGetMemoryInfo_v2 .used",
    ),
    MetricSpec(
        "gpu_memory_reserved_bytes",
        "gauge",
        "bytes",
        _GPU,
        "Framebuffer memory that the driver and firmware keep for themselves.",
        "nvmlDeviceGetMemoryInfo_v2 .reserved",
    ),
    MetricSpec(
        "gpu_power_watts",
        "gauge",
        "watts",
        _GPU,
        "Power drawn now by the whole board; the one second mean where the driver has no "
        "instantaneous value.",
        "NVML_FI_DEV_POWER_INSTANT (186), else nvmlDeviceGetPowerUsage",
    ),
    MetricSpec(
        "gpu_power_limit_watts",
        "gauge",
        "watts",
        _GPU,
        "Power limit that the driver enforces, the lowest of all that apply.",
        "nvmlDeviceGetEnforcedPowerLimit",
    ),
    MetricSpec(
        "gpu_energy_joules_total",
        "counter",
        "joules",
        _GPU,
        "Energy used since the driver was loaded; its rate is the mean power of the interval.",
        "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION (83)",
    ),
    MetricSpec(
        "gpu_temperature_celsius",
        "gauge",
        "celsius",
        ("gpu", "uuid", "sensor"),
        "Temperature by sensor: core or memory.",
        "nvmlDeviceGetTemperatureV, NVML_FI_DEV_MEMORY_TEMP (82)",
    ),
    MetricSpec(
        "gpu_clock_hertz",
        "gauge",
        "hertz",
        ("gpu", "uuid", "domain"),
        "Clock now by domain: graphics, sm or memory.",
        "nvmlDeviceGetClockInfo",
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
        _GPU,
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
)

_NVLINK: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nvlink_transmit_bytes_total",
        "counter",
        "bytes",
        _GPU,
        "Payload sent over all NVLinks of the GPU.",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX (138), else NVLINK_COUNT_XMIT_BYTES (202)",
    ),
    MetricSpec(
        "nvlink_receive_bytes_total",
        "counter",
        "bytes",
        _GPU,
        "Payload received over all NVLinks of the GPU.",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX (139), else NVLINK_COUNT_RCV_BYTES (204)",
    ),
    MetricSpec(
        "nvlink_up",
        "gauge",
        "1",
        _LINK,
        "1 if the link is active.",
        "NVML_FI_DEV_NVLINK_GET_STATE (165), else nvmlDeviceGetNvLinkState",
    ),
    MetricSpec(
        "nvlink_speed_bytes_per_second",
        "gauge",
        "bytes per second",
        _LINK,
        "Nominal speed of the link in one direction.",
        "NVML_FI_DEV_NVLINK_GET_SPEED (164)",
    ),
    MetricSpec(
        "nvlink_errors_total",
        "counter",
        "1",
        ("gpu", "uuid", "link", "type"),
        "Link errors by type. Hopper and older count replay, recovery and crc; Blackwell counts "
        "recovery, recovery_failed, malformed, overrun, receive, receive_remote, receive_general, "
        "integrity, discard, effective and symbol.",
        "NVML_FI_DEV_NVLINK_ERROR_DL_* (161-163), NVLINK_COUNT_* (206-221)",
    ),
)

_PCIE: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_pcie_transmit_bytes_total",
        "counter",
        "bytes",
        _GPU,
        "Bytes that the GPU sent over PCIe. The driver's counter may wrap; wraps are added up.",
        "NVML_FI_DEV_PCIE_COUNT_TX_BYTES (197)",
    ),
    MetricSpec(
        "gpu_pcie_receive_bytes_total",
        "counter",
        "bytes",
        _GPU,
        "Bytes that the GPU received over PCIe. The driver's counter may wrap; wraps are added up.",
        "NVML_FI_DEV_PCIE_COUNT_RX_BYTES (198)",
    ),
    MetricSpec(
        "gpu_pcie_link_generation",
        "gauge",
        "1",
        _GPU,
        "PCIe generation of the link now. An idle GPU lowers it: compare only under load.",
        "nvmlDeviceGetCurrPcieLinkGeneration",
    ),
    MetricSpec(
        "gpu_pcie_link_generation_max",
        "gauge",
        "1",
        _GPU,
        "Highest PCIe generation that GPU and slot allow together.",
        "nvmlDeviceGetMaxPcieLinkGeneration",
    ),
    MetricSpec(
        "gpu_pcie_link_width_lanes",
        "gauge",
        "lanes",
        _GPU,
        "PCIe lanes in use now.",
        "nvmlDeviceGetCurrPcieLinkWidth",
    ),
    MetricSpec(
        "gpu_pcie_link_width_lanes_max",
        "gauge",
        "lanes",
        _GPU,
        "PCIe lanes that GPU and slot allow together.",
        "nvmlDeviceGetMaxPcieLinkWidth",
    ),
    MetricSpec(
        "gpu_pcie_replays_total",
        "counter",
        "1",
        _GPU,
        "PCIe packets sent again after an error on the link.",
        "NVML_FI_DEV_PCIE_REPLAY_COUNTER (94), else nvmlDeviceGetPcieReplayCounter",
    ),
    MetricSpec(
        "pcie_aer_errors_total",
        "counter",
        "1",
        ("bdf", "severity", "type"),
        "PCIe advanced error reports of a GPU or NIC function. Severity correctable is split by "
        "the kernel's type name (BadTLP, Timeout, ...); nonfatal and fatal are one total each.",
        "/sys/bus/pci/devices/<bdf>/aer_dev_{correctable,nonfatal,fatal}",
    ),
    MetricSpec(
        "pcie_link_speed_transfers_per_second",
        "gauge",
        "transfers per second",
        ("bdf",),
        "Transfers per second and lane of the function's link now.",
        "/sys/bus/pci/devices/<bdf>/current_link_speed",
    ),
    MetricSpec(
        "pcie_link_width_lanes",
        "gauge",
        "lanes",
        ("bdf",),
        "Lanes of the function's link now.",
        "/sys/bus/pci/devices/<bdf>/current_link_width",
    ),
)

SPECS: tuple[MetricSpec, ...] = _CORE + _NVLINK + _PCIE
