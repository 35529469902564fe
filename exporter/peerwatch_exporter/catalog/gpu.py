"""GPU and NVLink metrics: one label pair (gpu, uuid), facts only on ``gpu_info``."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

# The index alone would splice two boards into one history after a replacement.
_GPU = ("gpu", "uuid")
_LINK = ("gpu", "uuid", "link")

_CORE: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_info",
        "gauge",
        "1",
        ("gpu", "uuid", "name", "serial", "pci_bus_id", "vbios", "driver", "numa_node"),
        "What board it is, of every board seen since the exporter started. numa_node is that of "
        "the board's own memory, where it has one (Grace). Value is always 1; join on (node, gpu).",
        "nvmlDeviceGet{UUID,Name,Serial,PciInfo,VbiosVersion,NumaNodeId}, "
        "nvmlSystemGetDriverVersion",
    ),
    MetricSpec(
        "gpus_visible",
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
        "1 if the driver lists the GPU and it answers; 0 if it was seen since the exporter started "
        "and is gone, lost, or hangs who asks it (then exporter_collector_stuck_seconds rises).",
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
        "Share of the time with a kernel running, 0 to 1 (utilization.gpu), mean of the last "
        "mean_seconds. It says nothing about how busy the kernel kept the GPU.",
        "nvmlDeviceGetUtilizationRates",
        swings=True,
    ),
    MetricSpec(
        "gpu_memory_utilization_ratio",
        "gauge",
        "ratio",
        _GPU,
        "Share of the time in which memory was read or written, 0 to 1 (utilization.memory), "
        "mean of the last mean_seconds.",
        "nvmlDeviceGetUtilizationRates",
        swings=True,
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
        "Power drawn by the whole board, mean of the last mean_seconds; of the driver's own "
        "means of a second where it has no instantaneous value.",
        "NVML_FI_DEV_POWER_INSTANT (186), else nvmlDeviceGetPowerUsage",
        swings=True,
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
        hardware="Volta",
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
        "gpu_temperature_margin_celsius",
        "gauge",
        "celsius",
        _GPU,
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
        "nvlink_raw_transmit_bytes_total",
        "counter",
        "bytes",
        _GPU,
        "Sent over all NVLinks of the GPU, with what the protocol adds to the payload.",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX (140)",
        "NVLink, Ampere to Hopper",
    ),
    MetricSpec(
        "nvlink_raw_receive_bytes_total",
        "counter",
        "bytes",
        _GPU,
        "Received over all NVLinks of the GPU, with what the protocol adds to the payload.",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX (141)",
        "NVLink, Ampere to Hopper",
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
        "recovery, malformed, overrun, receive, receive_remote, receive_general, integrity, "
        "discard, effective and symbol.",
        "NVML_FI_DEV_NVLINK_ERROR_DL_* (161-163), NVLINK_COUNT_* (206-221)",
    ),
)

_NVLINK_REPAIR: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nvlink_link_recoveries_total",
        "counter",
        "1",
        ("gpu", "uuid", "link", "result"),
        "How often the link was brought up again after an error, by result: successful or failed. "
        "One that fails again and again needs its connector or board looked at.",
        "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_{SUCCESSFUL,FAILED}_EVENTS (213, 214)",
        "NVLink, Blackwell",
    ),
    MetricSpec(
        "nvlink_bit_error_ratio",
        "gauge",
        "ratio",
        ("gpu", "uuid", "link", "kind"),
        "Share of bits that arrive wrong: effective (after all repair) or symbol (after forward "
        "error correction). A link far above its peers is about to fail.",
        "NVML_FI_DEV_NVLINK_COUNT_{EFFECTIVE,SYMBOL}_BER (220, 222)",
        "NVLink, Blackwell",
    ),
    MetricSpec(
        "nvlink_fec_symbols_total",
        "counter",
        "1",
        ("gpu", "uuid", "link", "bin"),
        "Symbol errors that forward error correction repaired, by bin 0 to 15: the higher the "
        "bin, the nearer to what cannot be repaired. Published if nvlink.fec is set.",
        "NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_* (235-250)",
        "NVLink, Blackwell",
    ),
)

_C2C: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nvlink_c2c_up",
        "gauge",
        "1",
        _LINK,
        "1 if this link between the GPU and the Grace CPU beside it is active. They carry all "
        "traffic between the two, and are no part of nvlink_up.",
        "NVML_FI_DEV_C2C_LINK_GET_STATUS (171)",
    ),
    MetricSpec(
        "nvlink_c2c_speed_bytes_per_second",
        "gauge",
        "bytes per second",
        _LINK,
        "Nominal speed of the active link between the GPU and its Grace CPU in one direction.",
        "NVML_FI_DEV_C2C_LINK_GET_MAX_BW (172)",
    ),
)

_PCIE: tuple[MetricSpec, ...] = (
    MetricSpec(
        "gpu_pcie_transmit_bytes_per_second",
        "gauge",
        "bytes per second",
        _GPU,
        "What the GPU sent over PCIe, mean of the last mean_seconds: for drivers without the "
        "counter gpu_pcie_transmit_bytes_total.",
        "nvmlGpmMetricsGet PCIE_TX_PER_SEC (20)",
        "Hopper",
        swings=True,
    ),
    MetricSpec(
        "gpu_pcie_receive_bytes_per_second",
        "gauge",
        "bytes per second",
        _GPU,
        "What the GPU received over PCIe, mean of the last mean_seconds: for drivers without the "
        "counter gpu_pcie_receive_bytes_total.",
        "nvmlGpmMetricsGet PCIE_RX_PER_SEC (21)",
        "Hopper",
        swings=True,
    ),
    MetricSpec(
        "gpu_pcie_errors_total",
        "counter",
        "1",
        ("gpu", "uuid", "type"),
        "Errors on the GPU's PCIe link by type: correctable, receiver, bad_tlp, bad_dllp, lcrc, "
        "lane, naks_sent, naks_received, replay_rollover, l0_to_recovery, unsupported_request, "
        "non_fatal and fatal. Correctable ones that keep rising announce a bad slot or riser.",
        "NVML_FI_DEV_PCIE_* (95, 169, 173-183)",
    ),
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
        "PCIe lanes in use now; fewer than the maximum under load: the link is degraded.",
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
        "PCIe packets sent again after an error on the link: nothing is lost but time; many mean "
        "a bad contact or riser.",
        "NVML_FI_DEV_PCIE_REPLAY_COUNTER (94), else nvmlDeviceGetPcieReplayCounter",
    ),
)

SPECS: tuple[MetricSpec, ...] = (
    *needing("NVIDIA GPU", _CORE),
    *needing("NVLink", _NVLINK + _NVLINK_REPAIR),
    *needing("NVLink-C2C", _C2C),
    *needing("NVIDIA GPU", _PCIE),
)
