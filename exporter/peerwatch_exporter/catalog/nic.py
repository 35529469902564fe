"""RDMA NIC metrics, from sysfs alone. Byte counters are bytes, not the kernel's 4-byte words."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_PORT = ("device", "port")
_TYPED = ("device", "port", "type")

_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nic_port_info",
        "gauge",
        "1",
        ("device", "port", "link_layer", "netdev", "bdf", "fw", "board_id", "gpu"),
        "What port it is. Value is always 1; join on (node, device, port). gpu is the index of "
        "the GPU it shares a PCIe switch with, empty if there is none; where several NICs and GPUs "
        "share one, they are paired in order. All equally near GPUs are in nic_gpu_info.",
        "ports/N/{link_layer,gid_attrs/ndevs/0}, device, fw_ver, board_id",
    ),
    MetricSpec(
        "nic_gpu_info",
        "gauge",
        "1",
        ("device", "port", "gpu", "nearness"),
        "The GPUs nearest to a port by PCIe, one row for each. nearness: switch (they share a "
        "PCIe bridge), host_bridge (they meet at the CPU's host bridge), numa (the same NUMA "
        "node). Value is always 1.",
        "/sys/bus/pci/devices/<bdf> link targets, numa_node",
        hardware="RDMA NIC and GPU",
    ),
    MetricSpec(
        "nic_port_state",
        "gauge",
        "1",
        _PORT,
        "Logical state: 1 down, 2 initialising, 3 armed, 4 active, 5 active but deferred.",
        "ports/N/state",
    ),
    MetricSpec(
        "nic_port_physical_state",
        "gauge",
        "1",
        _PORT,
        "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery.",
        "ports/N/phys_state",
    ),
    MetricSpec(
        "nic_port_rate_bytes_per_second",
        "gauge",
        "bytes per second",
        _PORT,
        "Speed that the port negotiated.",
        "ports/N/rate",
    ),
    MetricSpec(
        "nic_receive_bytes_total",
        "counter",
        "bytes",
        _PORT,
        "Bytes received (port_rcv_data, 4-byte words, times 4; rx_bytes on EFA and bnxt_re).",
        "ports/N/counters/port_rcv_data, else hw_counters/rx_bytes",
    ),
    MetricSpec(
        "nic_transmit_bytes_total",
        "counter",
        "bytes",
        _PORT,
        "Bytes sent (port_xmit_data, 4-byte words, times 4; tx_bytes on EFA and bnxt_re).",
        "ports/N/counters/port_xmit_data, else hw_counters/tx_bytes",
    ),
    MetricSpec(
        "nic_receive_packets_total",
        "counter",
        "packets",
        _PORT,
        "Packets received (port_rcv_packets).",
        "ports/N/counters/port_rcv_packets",
    ),
    MetricSpec(
        "nic_transmit_packets_total",
        "counter",
        "packets",
        _PORT,
        "Packets sent (port_xmit_packets).",
        "ports/N/counters/port_xmit_packets",
    ),
    MetricSpec(
        "nic_port_errors_total",
        "counter",
        "1",
        _TYPED,
        "Errors of the port; type is the kernel's name of the counter. symbol_error and "
        "port_rcv_errors: a bad cable or transceiver; port_xmit_discards: sent nowhere because "
        "the link was down or the fabric full.",
        "ports/N/counters/*",
    ),
    MetricSpec(
        "nic_link_downed_total",
        "counter",
        "1",
        _PORT,
        "Times the link failed to recover and went down (link_downed). Outside of reboots and "
        "maintenance: a bad cable, transceiver or switch port.",
        "ports/N/counters/link_downed",
    ),
    MetricSpec(
        "nic_link_recoveries_total",
        "counter",
        "1",
        _PORT,
        "Times the link recovered by itself after errors (link_error_recovery): traffic stood "
        "still meanwhile, and a link that does so often will fail.",
        "ports/N/counters/link_error_recovery",
    ),
    MetricSpec(
        "nic_transmit_wait_ticks_total",
        "counter",
        "ticks",
        _PORT,
        "Ticks with data to send and no credit to send it (port_xmit_wait): the fabric holds "
        "this port back.",
        "ports/N/counters/port_xmit_wait",
    ),
    MetricSpec(
        "nic_rdma_errors_total",
        "counter",
        "1",
        _TYPED,
        "RDMA transport errors and retries; type is the kernel's name of the counter. "
        "local_ack_timeout_err: the peer did not answer; packet_seq_err: packets were lost; "
        "out_of_buffer: this node posted too few receive buffers.",
        "ports/N/hw_counters/*",
    ),
    MetricSpec(
        "nic_cnp_sent_total",
        "counter",
        "packets",
        _PORT,
        "Congestion notifications sent: this node received marked packets (np_cnp_sent).",
        "ports/N/hw_counters/np_cnp_sent, else tx_cnp_pkts",
        hardware="mlx5, RoCE",
    ),
    MetricSpec(
        "nic_cnp_handled_total",
        "counter",
        "packets",
        _PORT,
        "Congestion notifications obeyed: this node slowed its sending down (rp_cnp_handled).",
        "ports/N/hw_counters/rp_cnp_handled, else rx_cnp_pkts",
        hardware="mlx5, RoCE",
    ),
    MetricSpec(
        "nic_cnp_ignored_total",
        "counter",
        "packets",
        _PORT,
        "Congestion notifications received and not obeyed (rp_cnp_ignored): congestion control "
        "is off or set up differently on this node.",
        "ports/N/hw_counters/rp_cnp_ignored",
        hardware="mlx5, RoCE",
    ),
    MetricSpec(
        "nic_ecn_marked_packets_total",
        "counter",
        "packets",
        _PORT,
        "RoCE packets received with the congestion mark: a switch on the way here queues "
        "(np_ecn_marked_roce_packets).",
        "ports/N/hw_counters/np_ecn_marked_roce_packets, else rx_ecn_marked_pkts",
        hardware="mlx5, RoCE",
    ),
    MetricSpec(
        "nic_out_of_sequence_packets_total",
        "counter",
        "packets",
        _PORT,
        "Packets received out of sequence (out_of_sequence): some were lost on the way here, or "
        "the fabric sends them along several paths.",
        "ports/N/hw_counters/out_of_sequence",
        hardware="mlx5",
    ),
)

SPECS: tuple[MetricSpec, ...] = needing("RDMA NIC", _SPECS)
