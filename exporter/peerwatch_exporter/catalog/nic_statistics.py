"""Metrics of what network drivers count: flow control, buffers, PHY and PCIe of a NIC's port."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

# What no detection metric compares: its alerts sum up over 5 to 15 minutes.
SLOW_SECONDS = 5

_PORT_LABELS = ("device", "port")
_DIRECTION_LABELS = (*_PORT_LABELS, "direction")
_PRIORITY_LABELS = (*_DIRECTION_LABELS, "priority")
_PAUSE_MEANING = (
    "Direction receive: the peer stopped this port, check the fabric. Direction transmit: this "
    "port stopped its peer, check the NIC's buffers, PCIe and the host."
)

SPECS = needing(
    "NIC statistics",
    MetricSpec(
        "nic_pfc_pause_frames_total",
        "counter",
        "1",
        _PRIORITY_LABELS,
        f"Pause frames of one priority. {_PAUSE_MEANING} Counted where PFC is on; ionic "
        "counts those of all priorities together, as priority all.",
        "ethtool -S; mlx5: {rx,tx}_prioN_pause",
    ),
    MetricSpec(
        "nic_pfc_pause_seconds_total",
        "counter",
        "seconds",
        _PRIORITY_LABELS,
        f"Time for which a priority stood still. {_PAUSE_MEANING}",
        "ethtool -S; mlx5: {rx,tx}_prioN_pause_duration (microseconds)",
    ),
    MetricSpec(
        "nic_pfc_pause_transitions_total",
        "counter",
        "1",
        _PRIORITY_LABELS,
        "Times a stopped priority was let go again; few long stops and many short ones differ "
        "here. mlx5 counts direction receive only.",
        "ethtool -S; mlx5: rx_prioN_pause_transition",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_global_pause_frames_total",
        "counter",
        "1",
        _DIRECTION_LABELS,
        f"Pause frames that stop the whole link. {_PAUSE_MEANING} On a lossless fabric PFC stands "
        "in its place: a rise here is a port with the wrong setting.",
        "ethtool -S; mlx5: {rx,tx}_global_pause",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_global_pause_seconds_total",
        "counter",
        "seconds",
        _DIRECTION_LABELS,
        f"Time for which the whole link stood still. {_PAUSE_MEANING}",
        "ethtool -S; mlx5: {rx,tx}_global_pause_duration (microseconds)",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_global_pause_transitions_total",
        "counter",
        "1",
        _DIRECTION_LABELS,
        "Times the stopped link was let go again. mlx5 counts direction receive only.",
        "ethtool -S; mlx5: rx_global_pause_transition",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_pause_storm_events_total",
        "counter",
        "1",
        ("device", "port", "severity"),
        "Times this port stopped its peer for too long. Severity warning: the host drains the NIC "
        "too slowly. Severity error: it sends no more pause frames and loses packets instead.",
        "ethtool -S tx_pause_storm_{warning,error}_events",
        hardware="mlx5",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_receive_discards_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets dropped on arrival for want of buffer: the NIC cannot get rid of what the fabric "
        "brings (rx_discards_phy).",
        "ethtool -S; mlx5: rx_discards_phy",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_receive_out_of_buffer_packets_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets dropped because no receive buffer was posted: the host's software is too slow "
        "(rx_out_of_buffer).",
        "ethtool -S; mlx5: rx_out_of_buffer",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_priority_discards_total",
        "counter",
        "packets",
        ("device", "port", "priority", "reason"),
        "Packets of a priority dropped on arrival. Reason port_buffer: no buffer on the port; "
        "host_buffer: none for this host; host_congestion: the host is too slow.",
        "ethtool -S rx_prioN_{discards,buf_discard,cong_discard}",
        hardware="mlx5",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_priority_ecn_marked_total",
        "counter",
        "packets",
        ("device", "port", "priority"),
        "Packets that this NIC itself marked as congested, because its host is too slow. Marks of "
        "switches are in nic_ecn_marked_packets_total.",
        "ethtool -S rx_prioN_marked",
        hardware="mlx5",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_pcie_stalled_seconds_total",
        "counter",
        "seconds",
        ("device", "port", "operation"),
        "Seconds in which the NIC waited for PCIe credits for more than 30 % of the time, by "
        "operation read or write: the host side is the bottleneck, and transmit pauses follow.",
        "ethtool -S outbound_pci_stalled_{rd,wr}_events",
        hardware="mlx5",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_pcie_buffer_overflow_packets_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets dropped because the buffer towards PCIe was full: the host side is the "
        "bottleneck.",
        "ethtool -S outbound_pci_buffer_overflow",
        hardware="mlx5",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_pcie_signal_errors_total",
        "counter",
        "1",
        _DIRECTION_LABELS,
        "Errors of the PCIe signal that made the NIC's link recover, by direction: a bad slot, "
        "riser or contact.",
        "ethtool -S {rx,tx}_pci_signal_integrity",
        hardware="mlx5",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_link_down_events_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Times the link was lost, as the PHY counted it; it sees flaps too short for the state.",
        "ethtool -S; mlx5: link_down_events_phy",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_crc_errors_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Frames received with a wrong checksum: cable, transceiver or the peer's port.",
        "ethtool -S; mlx5: rx_crc_errors_phy",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_received_bytes_total",
        "counter",
        "bytes",
        _PORT_LABELS,
        "Bytes that could have been received (rx_bits_phy / 8): what bit errors, times 8, and "
        "symbol errors are a share of.",
        "ethtool -S; mlx5: rx_bits_phy",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_corrected_bit_errors_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Bits that error correction repaired. Some are normal; a port with many more than its "
        "peers has a dirty or loose cable or transceiver.",
        "ethtool -S; mlx5: rx_corrected_bits_phy",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_symbol_errors_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Symbols that error correction could not repair: traffic is lost, replace the cable or "
        "transceiver.",
        "ethtool -S; mlx5: rx_pcs_symbol_err_phy",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_transmit_discards_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets that the port dropped instead of sending: no room, or the link is down "
        "(tx_discards_phy).",
        "ethtool -S; mlx5: tx_discards_phy",
        not_drawn="beside nic_receive_discards_total, when looking for the cause",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_faults_total",
        "counter",
        "1",
        ("device", "port", "side"),
        "Link faults that the MAC saw. Side local: this port receives no good signal; remote: "
        "the peer says that it receives none.",
        "ethtool -S; ice: mac_{local,remote}_faults.nic",
        hardware="Intel NIC",
        not_drawn="beside nic_phy_link_down_events_total, when looking for the cause",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_lane_errors_total",
        "counter",
        "1",
        ("device", "port", "lane"),
        "Bit errors of each lane before error correction: one lane far above the others is one "
        "bad fibre or contact.",
        "ethtool -S rx_err_lane_N_phy",
        hardware="mlx5",
        not_drawn="beside nic_phy_corrected_bit_errors_total, when looking for the cause",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_fec_corrected_blocks_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Blocks that error correction repaired; some are normal.",
        "ethtool -S; bnxt_en: rx_fec_corrected_blocks",
        hardware="Broadcom NIC",
        not_drawn="the bit errors are drawn",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_phy_fec_uncorrectable_blocks_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Blocks that error correction could not repair: traffic is lost, replace the cable or "
        "transceiver.",
        "ethtool -S; bnxt_en: rx_fec_uncorrectable_blocks",
        hardware="Broadcom NIC",
        not_drawn="the symbol errors are drawn",
        every_seconds=SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_module_events_total",
        "counter",
        "1",
        ("device", "port", "event"),
        "What happened to the transceiver or cable: unplugged, bus_stuck, high_temperature, "
        "bad_or_shorted.",
        "ethtool -S module_*",
        hardware="mlx5",
        not_drawn="beside nic_phy_link_down_events_total, when looking for the cause",
        every_seconds=SLOW_SECONDS,
    ),
)
