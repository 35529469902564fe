"""What the sampler sees between two scrapes, and how the sampler itself fares. Off by default."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

_STATISTIC = (
    "statistic: max, p99 (99 % of the samples were not above it) or mean of the last "
    "sampler.window_seconds."
)
_PORT = ("device", "port")
_RATE = (*_PORT, "statistic")
_DIRECTED = (*_PORT, "direction", "statistic")
_PROCESS = "sampler process"

SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nic_burst_transmit_bytes_per_second",
        "gauge",
        "bytes per second",
        _RATE,
        f"Rate of bytes sent between two samples of the sampler; {_STATISTIC} A max far above the "
        "mean is traffic in bursts that a scrape does not show (port_xmit_data, times 4).",
        "ports/N/counters/port_xmit_data, every sampler.interval_milliseconds",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_receive_bytes_per_second",
        "gauge",
        "bytes per second",
        _RATE,
        f"Rate of bytes received between two samples; {_STATISTIC} (port_rcv_data, times 4).",
        "ports/N/counters/port_rcv_data, every sampler.interval_milliseconds",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_transmit_packets_per_second",
        "gauge",
        "packets per second",
        _RATE,
        f"Rate of packets sent between two samples; {_STATISTIC} (port_xmit_packets). Only if "
        "named in sampler.counters.",
        "ports/N/counters/port_xmit_packets, every sampler.interval_milliseconds",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_receive_packets_per_second",
        "gauge",
        "packets per second",
        _RATE,
        f"Rate of packets received between two samples; {_STATISTIC} (port_rcv_packets). Only if "
        "named in sampler.counters.",
        "ports/N/counters/port_rcv_packets, every sampler.interval_milliseconds",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_cnp_packets_per_second",
        "gauge",
        "packets per second",
        _DIRECTED,
        "Rate of congestion notifications between two samples: transmit, this node received "
        f"marked packets (np_cnp_sent); receive, it had to slow down (rp_cnp_handled). "
        f"{_STATISTIC}",
        "ports/N/hw_counters/{np_cnp_sent,rp_cnp_handled}, once per lifespan",
        "mlx5, RoCE",
    ),
    MetricSpec(
        "nic_burst_ecn_marked_packets_per_second",
        "gauge",
        "packets per second",
        _RATE,
        "Rate of packets received with the congestion mark, between two samples "
        f"(np_ecn_marked_roce_packets); {_STATISTIC}",
        "ports/N/hw_counters/np_ecn_marked_roce_packets, once per lifespan",
        "mlx5, RoCE",
    ),
    MetricSpec(
        "nic_burst_pfc_pause_frames_per_second",
        "gauge",
        "frames per second",
        _DIRECTED,
        "Rate of PFC pause frames of all priorities between two samples: receive, the peer "
        f"stopped this port; transmit, this port stopped its peer. {_STATISTIC}",
        "ETHTOOL_GSTATS {rx,tx}_prioN_pause, every 10 ms or as its cost allows",
        "mlx5",
    ),
    MetricSpec(
        "nic_burst_line_rate_ratio",
        "gauge",
        "ratio",
        (*_PORT, "direction"),
        "Part of the samples in which the port was at line rate: at or above "
        "sampler.line_rate_ratio of its negotiated speed.",
        "the byte counters above, ports/N/rate",
        "RDMA NIC",
    ),
    MetricSpec(
        "nic_burst_active_ratio",
        "gauge",
        "ratio",
        (*_PORT, "counter"),
        "Part of the samples in which the counter rose: of receive_pause_frames, how often the "
        "port was being stopped.",
        "the counters above",
        "mlx5",
    ),
    MetricSpec(
        "nic_burst_update_interval_seconds",
        "gauge",
        "seconds",
        (*_PORT, "counter"),
        "Median time between two changes of the counter in the last second in which it changed. "
        "Well above sampler_interval_seconds on a busy port: the NIC refreshes the counter only "
        "that often, and what happens within that time cannot be told apart.",
        "the counters above",
        "RDMA NIC",
    ),
    MetricSpec(
        "gpu_burst_power_watts",
        "gauge",
        "watts",
        ("gpu", "uuid", "statistic"),
        f"Power drawn, from the samples that the driver takes by itself; {_STATISTIC}",
        "nvmlDeviceGetSamples NVML_TOTAL_POWER_SAMPLES",
        "NVIDIA GPU, no MIG",
    ),
    MetricSpec(
        "gpu_burst_utilization_ratio",
        "gauge",
        "ratio",
        ("gpu", "uuid", "statistic"),
        f"Part of the time with a kernel running, from the driver's own samples; {_STATISTIC}",
        "nvmlDeviceGetSamples NVML_GPU_UTILIZATION_SAMPLES",
        "NVIDIA GPU, no MIG",
    ),
    MetricSpec(
        "sampler_interval_seconds",
        "gauge",
        "seconds",
        (),
        "Time between two samples of the fastest counters, as achieved in the last second.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_interval_stretched",
        "gauge",
        "1",
        (),
        "1 while the sampler reads less often than configured, because it would use more CPU time "
        "than sampler.max_cpu_ratio allows.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_samples_total",
        "counter",
        "1",
        (),
        "Times the fastest counters were read.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_late_samples_total",
        "counter",
        "1",
        (),
        "Samples skipped, or taken more than half an interval late: the node's CPUs are busy, or "
        "a counter is slow to read.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_cpu_ratio",
        "gauge",
        "ratio",
        (),
        "CPU time per second that the sampler process used in the last second; 1 is one CPU.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_window_seconds",
        "gauge",
        "seconds",
        (),
        "What the statistics cover; sampler.window_seconds once it has run that long.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_series",
        "gauge",
        "1",
        (),
        "Counters that are sampled, all ports together.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_missing_series",
        "gauge",
        "1",
        (),
        "Counters of them that cannot be read now; they are tried again.",
        _PROCESS,
    ),
    MetricSpec(
        "sampler_restarts_total",
        "counter",
        "1",
        (),
        "Times the sampler process was started again: it had ended, had hung, or the node has new "
        "ports.",
        "exporter",
    ),
    MetricSpec(
        "sampler_stuck_seconds",
        "gauge",
        "seconds",
        (),
        "For how long the sampler process has not spoken, if that is 5 s or more: a counter's "
        "reading does not return. Else 0.",
        "exporter",
    ),
)
