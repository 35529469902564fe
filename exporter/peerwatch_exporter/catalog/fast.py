"""The fast endpoint's metrics: what the detector compares, once per node or GPU, every second.

Names of their own, for a Prometheus that scrapes both endpoints would otherwise count twice in
every sum. How each value is made stands in ``peerwatch_exporter.schedule.fast``.
"""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

_GPU = ("gpu",)
_RATE = (
    "mean between the last two readings, by the time of each; absent for a second in which a "
    "counter was reset or could not be read."
)
_TOTAL = "Goes on over a device that is taken out or comes back."
# By the beginning of the name; the first that fits.
_HARDWARE = (
    ("fast_fine_rdma_", "RDMA NIC"),
    ("fast_fine_pfc_", "NIC statistics"),
    ("fast_fine_", "mlx5, RoCE"),
    ("fast_heartbeat_", "heartbeat"),
    ("fast_job_", "training job"),
    ("fast_gpu_job_", "training job"),
    ("fast_pfc_", "NIC statistics"),
    ("fast_ecn_", "RoCE"),
    ("fast_cnp_", "RoCE"),
    ("fast_rdma_", "RDMA NIC"),
    ("fast_nvlink_", "NVLink"),
    ("fast_gpu_tensor_", "Hopper"),
    ("fast_gpu_graphics_", "Hopper"),
    ("fast_gpu_", "NVIDIA GPU"),
)


def _hardware(name: str) -> str:
    return next((hardware for start, hardware in _HARDWARE if name.startswith(start)), "")


def _counter(
    stem: str, unit: str, what: str, source: str, labels: tuple[str, ...] = ()
) -> tuple[MetricSpec, MetricSpec]:
    """Return a counter and its rate."""
    return (
        MetricSpec(
            f"{stem}_total",
            "counter",
            unit,
            labels,
            f"{what} {_TOTAL}",
            source,
            _hardware(stem),
        ),
        MetricSpec(
            f"{stem}_per_second",
            "gauge",
            f"{unit} per second",
            labels,
            f"{what} Per second: the {_RATE}",
            f"{stem}_total",
            _hardware(stem),
        ),
    )


def _gauge(
    name: str, unit: str, what: str, source: str, labels: tuple[str, ...] = ()
) -> tuple[MetricSpec]:
    return (MetricSpec(name, "gauge", unit, labels, what, source, _hardware(name)),)


_NODE: tuple[MetricSpec, ...] = (
    *_gauge(
        "fast_up",
        "1",
        "Always 1, and never with a timestamp: it vanishes at once when the node does, while "
        "samples with timestamps stay visible for minutes.",
        "fast endpoint",
    ),
    *_gauge(
        "fast_job_info",
        "1",
        "1 for each training job that runs on this node; joins the job to the fast series.",
        "host_job_info",
        ("job_id",),
    ),
    *_gauge(
        "fast_heartbeat_age_seconds",
        "seconds",
        "Age of the oldest heartbeat of the job's ranks on this node.",
        "rank_heartbeat_timestamp_seconds",
        ("job_id",),
    ),
    *_counter(
        "fast_pfc_transmit_pause_frames",
        "frames",
        "Pause frames sent by all ports and priorities: this node stopped its peers.",
        "nic_pfc_pause_frames_total",
    ),
    *_counter(
        "fast_pfc_receive_pause_frames",
        "frames",
        "Pause frames received by all ports and priorities: the fabric stopped this node.",
        "nic_pfc_pause_frames_total",
    ),
    *_counter(
        "fast_pfc_transmit_pause_seconds",
        "seconds",
        "Time for which this node stopped its peers, summed over ports and priorities.",
        "nic_pfc_pause_seconds_total",
    ),
    *_counter(
        "fast_pfc_receive_pause_seconds",
        "seconds",
        "Time for which the fabric stopped this node, summed over ports and priorities.",
        "nic_pfc_pause_seconds_total",
    ),
    *_counter(
        "fast_tcp_retransmitted_segments",
        "segments",
        "TCP segments sent again because no acknowledgement came.",
        "host_tcp_retransmitted_segments_total",
    ),
    *_gauge(
        "fast_tcp_send_queue_bytes",
        "bytes",
        "Bytes in the send queues of established TCP connections.",
        "host_tcp_send_queue_bytes",
    ),
    *_counter(
        "fast_ecn_marked_packets",
        "packets",
        "RoCE packets received with the congestion mark, over all ports.",
        "nic_ecn_marked_packets_total",
    ),
    *_counter(
        "fast_cnp_sent_packets",
        "packets",
        "Congestion notifications sent, over all ports.",
        "nic_cnp_sent_total",
    ),
    *_gauge(
        "fast_cpu_usage_ratio",
        "ratio",
        "Share of the node's CPUs that were busy (neither idle nor waiting for storage): the "
        f"{_RATE}",
        "host_cpu_seconds_total, host_cpus",
    ),
    *_counter(
        "fast_rdma_bytes",
        "bytes",
        "Bytes sent and received by all RDMA ports.",
        "nic_transmit_bytes_total, nic_receive_bytes_total",
    ),
    *_counter(
        "fast_network_bytes",
        "bytes",
        "Bytes sent and received by all network interfaces but lo.",
        "host_network_transmit_bytes_total, host_network_receive_bytes_total",
    ),
    *_gauge(
        "fast_memory_usage_ratio",
        "ratio",
        "Share of the node's memory that is not available.",
        "host_memory_available_bytes, host_memory_total_bytes",
    ),
)

_PER_GPU: tuple[MetricSpec, ...] = (
    *_gauge(
        "fast_gpu_job_info",
        "1",
        "1 for each training job that holds this GPU; joins the job to the fast GPU series.",
        "gpu_job_info",
        ("gpu", "job_id"),
    ),
    *_gauge(
        "fast_gpu_utilization_ratio",
        "ratio",
        "Share of the last sample period with a kernel running.",
        "gpu_utilization_ratio",
        _GPU,
    ),
    *_gauge("fast_gpu_power_watts", "watts", "Power drawn.", "gpu_power_watts", _GPU),
    *_gauge("fast_gpu_sm_clock_hertz", "hertz", "SM clock.", "gpu_clock_hertz", _GPU),
    *_gauge(
        "fast_gpu_tensor_active_ratio",
        "ratio",
        "Share of time with work in the tensor cores.",
        "gpu_tensor_active_ratio",
        _GPU,
    ),
    *_gauge(
        "fast_gpu_graphics_active_ratio",
        "ratio",
        "Share of time with any work in the graphics and compute engine.",
        "gpu_graphics_active_ratio",
        _GPU,
    ),
    *_counter(
        "fast_nvlink_bytes",
        "bytes",
        "Bytes sent and received over NVLink.",
        "nvlink_transmit_bytes_total, nvlink_receive_bytes_total",
        _GPU,
    ),
    *_counter(
        "fast_gpu_pcie_bytes",
        "bytes",
        "Bytes sent and received over PCIe.",
        "gpu_pcie_transmit_bytes_total, gpu_pcie_receive_bytes_total",
        _GPU,
    ),
    *_gauge(
        "fast_gpu_memory_used_ratio",
        "ratio",
        "Share of the framebuffer memory that is allocated.",
        "gpu_memory_used_bytes, gpu_memory_total_bytes",
        _GPU,
    ),
)

_FINE_STEP = (
    "at steps finer than a second, from the sampler; only with fast.fine_step_milliseconds."
)

_FINE: tuple[MetricSpec, ...] = (
    *_gauge(
        "fast_fine_rdma_bytes_per_second",
        "bytes per second",
        f"Bytes sent and received over all RDMA ports, {_FINE_STEP}",
        "counters/port_xmit_data, counters/port_rcv_data",
    ),
    *_gauge(
        "fast_fine_pfc_transmit_pause_frames_per_second",
        "frames per second",
        f"Pause frames sent by all ports, {_FINE_STEP}",
        "ethtool tx_prio*_pause",
    ),
    *_gauge(
        "fast_fine_pfc_receive_pause_frames_per_second",
        "frames per second",
        f"Pause frames received by all ports, {_FINE_STEP}",
        "ethtool rx_prio*_pause",
    ),
    *_gauge(
        "fast_fine_ecn_marked_packets_per_second",
        "packets per second",
        f"RoCE packets received with the congestion mark, {_FINE_STEP}",
        "hw_counters/np_ecn_marked_roce_packets",
    ),
    *_gauge(
        "fast_fine_cnp_sent_packets_per_second",
        "packets per second",
        f"Congestion notifications sent, {_FINE_STEP}",
        "hw_counters/np_cnp_sent",
    ),
)

SPECS: tuple[MetricSpec, ...] = _NODE + _PER_GPU + _FINE
