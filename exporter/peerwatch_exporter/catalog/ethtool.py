"""Flow control, PHY and PCIe metrics of NIC ports, from the driver's own statistics (mlx5)."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_PORT = ("device", "port")
_PRIORITY = ("device", "port", "direction", "priority")
_DIRECTION = ("device", "port", "direction")
_PAUSE_MEANING = (
    "Direction receive: the peer stopped this port, look at the fabric. Direction transmit: this "
    "port stopped its peer, look at the NIC's buffers, PCIe and the host."
)

_PAUSE: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nic_pfc_pause_frames_total",
        "counter",
        "1",
        _PRIORITY,
        f"Pause frames of one priority. {_PAUSE_MEANING} Counted where PFC is on.",
        "ethtool -S {rx,tx}_prioN_pause",
    ),
    MetricSpec(
        "nic_pfc_pause_seconds_total",
        "counter",
        "seconds",
        _PRIORITY,
        f"Time for which a priority stood still. {_PAUSE_MEANING}",
        "ethtool -S {rx,tx}_prioN_pause_duration (microseconds)",
    ),
    MetricSpec(
        "nic_pfc_pause_transitions_total",
        "counter",
        "1",
        _PRIORITY,
        "Times a stopped priority was let go again; few long stops and many short ones differ "
        "here. mlx5 counts direction receive only.",
        "ethtool -S rx_prioN_pause_transition",
    ),
    MetricSpec(
        "nic_global_pause_frames_total",
        "counter",
        "1",
        _DIRECTION,
        f"Pause frames that stop the whole link. {_PAUSE_MEANING} On a lossless fabric PFC stands "
        "in its place: a rise here is a port with the wrong setting.",
        "ethtool -S {rx,tx}_global_pause",
    ),
    MetricSpec(
        "nic_global_pause_seconds_total",
        "counter",
        "seconds",
        _DIRECTION,
        f"Time for which the whole link stood still. {_PAUSE_MEANING}",
        "ethtool -S {rx,tx}_global_pause_duration (microseconds)",
    ),
    MetricSpec(
        "nic_global_pause_transitions_total",
        "counter",
        "1",
        _DIRECTION,
        "Times the stopped link was let go again. mlx5 counts direction receive only.",
        "ethtool -S rx_global_pause_transition",
    ),
    MetricSpec(
        "nic_pause_storm_events_total",
        "counter",
        "1",
        ("device", "port", "severity"),
        "Times this port stopped its peer for too long. Severity warning: the host drains the NIC "
        "too slowly. Severity error: it sends no more pause frames and loses packets instead.",
        "ethtool -S tx_pause_storm_{warning,error}_events",
    ),
)

_BUFFERS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nic_receive_discards_total",
        "counter",
        "packets",
        _PORT,
        "Packets dropped on arrival for want of buffer: the NIC cannot get rid of what the fabric "
        "brings (rx_discards_phy).",
        "ethtool -S rx_discards_phy",
    ),
    MetricSpec(
        "nic_receive_out_of_buffer_packets_total",
        "counter",
        "packets",
        _PORT,
        "Packets dropped because no receive buffer was posted: the host's software is too slow "
        "(rx_out_of_buffer).",
        "ethtool -S rx_out_of_buffer",
    ),
    MetricSpec(
        "nic_priority_discards_total",
        "counter",
        "packets",
        ("device", "port", "priority", "reason"),
        "Packets of a priority dropped on arrival. Reason port_buffer: no buffer on the port; "
        "host_buffer: none for this host; host_congestion: the host is too slow.",
        "ethtool -S rx_prioN_{discards,buf_discard,cong_discard}",
    ),
    MetricSpec(
        "nic_priority_ecn_marked_total",
        "counter",
        "packets",
        ("device", "port", "priority"),
        "Packets that this NIC itself marked as congested, because its host is too slow. Marks of "
        "switches are in nic_ecn_marked_packets_total.",
        "ethtool -S rx_prioN_marked",
    ),
)

_LINK: tuple[MetricSpec, ...] = (
    MetricSpec(
        "nic_pcie_stalled_seconds_total",
        "counter",
        "seconds",
        ("device", "port", "operation"),
        "Seconds in which the NIC waited for PCIe credits for more than 30 % of the time, by "
        "operation read or write: the host side is the bottleneck, and transmit pauses follow.",
        "ethtool -S outbound_pci_stalled_{rd,wr}_events",
    ),
    MetricSpec(
        "nic_pcie_buffer_overflow_packets_total",
        "counter",
        "packets",
        _PORT,
        "Packets dropped because the buffer towards PCIe was full: the host side is the "
        "bottleneck.",
        "ethtool -S outbound_pci_buffer_overflow",
    ),
    MetricSpec(
        "nic_pcie_signal_errors_total",
        "counter",
        "1",
        _DIRECTION,
        "Errors of the PCIe signal that made the NIC's link recover, by direction: a bad slot, "
        "riser or contact.",
        "ethtool -S {rx,tx}_pci_signal_integrity",
    ),
    MetricSpec(
        "nic_phy_link_down_events_total",
        "counter",
        "1",
        _PORT,
        "Times the link was lost, as the PHY counted it; it sees flaps too short for the state.",
        "ethtool -S link_down_events_phy",
    ),
    MetricSpec(
        "nic_phy_crc_errors_total",
        "counter",
        "packets",
        _PORT,
        "Frames received with a wrong checksum: cable, transceiver or the peer's port.",
        "ethtool -S rx_crc_errors_phy",
    ),
    MetricSpec(
        "nic_phy_received_bytes_total",
        "counter",
        "bytes",
        _PORT,
        "Bytes that could have been received (rx_bits_phy / 8): what bit errors, times 8, and "
        "symbol errors are a share of.",
        "ethtool -S rx_bits_phy",
    ),
    MetricSpec(
        "nic_phy_corrected_bit_errors_total",
        "counter",
        "1",
        _PORT,
        "Bits that error correction repaired. Some are normal; a port with many more than its "
        "peers has a dirty or loose cable or transceiver.",
        "ethtool -S rx_corrected_bits_phy",
    ),
    MetricSpec(
        "nic_phy_symbol_errors_total",
        "counter",
        "1",
        _PORT,
        "Symbols that error correction could not repair: traffic is lost, replace the cable or "
        "transceiver.",
        "ethtool -S rx_pcs_symbol_err_phy",
    ),
)

SPECS: tuple[MetricSpec, ...] = needing("mlx5", _PAUSE + _BUFFERS + _LINK)
