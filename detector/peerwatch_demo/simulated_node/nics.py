"""What a NIC of the fake node counts at a time: files of sysfs and statistics of its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_demo.simulated_node.noise import noise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peerwatch_demo.simulated_node.scenario import NicFault, Scenario

# Made-up traffic at two thirds of 400 Gbit/s, in packets of RoCE's largest MTU and their headers.
_BYTES_PER_SECOND = 32e9
_PACKET_BYTES = 4096 + 62
# InfiniBand's port_*_data count words of 32 bits.
_WORD_BYTES = 4
RATE = "400 Gb/sec (4X NDR)"

_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
)
_HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
)
_PER_PRIORITY = ("bytes", "packets", "discards", "buf_discard", "cong_discard", "marked")
_STATISTICS = (
    "rx_packets",
    "rx_bytes",
    "tx_packets",
    "tx_bytes",
    "rx_out_of_buffer",
    "rx_vport_rdma_unicast_packets",
    "rx_vport_rdma_unicast_bytes",
    "tx_vport_rdma_unicast_packets",
    "tx_vport_rdma_unicast_bytes",
    "tx_packets_phy",
    "rx_packets_phy",
    "tx_bytes_phy",
    "rx_bytes_phy",
    "rx_crc_errors_phy",
    "rx_symbol_err_phy",
    "rx_discards_phy",
    "tx_discards_phy",
    "tx_errors_phy",
    "link_down_events_phy",
    "rx_pcs_symbol_err_phy",
    "rx_corrected_bits_phy",
    "rx_err_lane_0_phy",
    "rx_err_lane_1_phy",
    "rx_err_lane_2_phy",
    "rx_err_lane_3_phy",
    "rx_bits_phy",
    "rx_buffer_passed_thres_phy",
    "rx_pci_signal_integrity",
    "tx_pci_signal_integrity",
    "outbound_pci_stalled_rd",
    "outbound_pci_stalled_wr",
    "outbound_pci_stalled_rd_events",
    "outbound_pci_stalled_wr_events",
    "outbound_pci_buffer_overflow",
    *(f"rx_prio{number}_{what}" for number in range(8) for what in _PER_PRIORITY),
    *(f"tx_prio{number}_{what}" for number in range(8) for what in ("bytes", "packets")),
    # PFC is on for priority 3 only, so that the driver counts pauses of no other.
    *(f"{side}_prio3_pause{what}" for side in ("rx", "tx") for what in ("", "_duration")),
    "rx_prio3_pause_transition",
    *(f"{side}_global_pause{what}" for side in ("rx", "tx") for what in ("", "_duration")),
    "rx_global_pause_transition",
    "tx_pause_storm_warning_events",
    "tx_pause_storm_error_events",
    "module_unplug",
    "module_bus_stuck",
    "module_high_temp",
    "module_bad_shorted",
)

# What a healthy fabric counts, per second of traffic at full rate; made-up, of a usual size.
_BACKGROUND = {
    "np_ecn_marked_roce_packets": 210.0,
    "np_cnp_sent": 105.0,
    "rp_cnp_handled": 98.0,
    "rx_prio3_marked": 210.0,
    "rx_prio3_pause": 8.0,
    "rx_prio3_pause_duration": 150.0,
    "rx_prio3_pause_transition": 4.0,
    "rx_global_pause": 8.0,
    "rx_global_pause_duration": 150.0,
    "rx_global_pause_transition": 4.0,
    "tx_prio3_pause": 2.0,
    "tx_prio3_pause_duration": 30.0,
    "rx_corrected_bits_phy": 310.0,
    "rx_err_lane_0_phy": 80.0,
    "rx_err_lane_1_phy": 75.0,
    "rx_err_lane_2_phy": 82.0,
    "rx_err_lane_3_phy": 73.0,
    "port_xmit_wait": 25_000.0,
    "roce_slow_restart": 0.02,
    "out_of_sequence": 0.01,
    "rx_write_requests": 90_000.0,
    "multicast_rcv_packets": 0.5,
    "multicast_xmit_packets": 0.5,
}
_RECEIVED = {
    "port_rcv_data": 1 / _WORD_BYTES,
    "port_rcv_packets": 1 / _PACKET_BYTES,
    "unicast_rcv_packets": 1 / _PACKET_BYTES,
    "rx_vport_rdma_unicast_bytes": 1.0,
    "rx_vport_rdma_unicast_packets": 1 / _PACKET_BYTES,
    "rx_bytes_phy": 1.0,
    "rx_packets_phy": 1 / _PACKET_BYTES,
    "rx_prio3_bytes": 1.0,
    "rx_prio3_packets": 1 / _PACKET_BYTES,
}
_SENT = {
    "port_xmit_data": 1 / _WORD_BYTES,
    "port_xmit_packets": 1 / _PACKET_BYTES,
    "unicast_xmit_packets": 1 / _PACKET_BYTES,
    "tx_vport_rdma_unicast_bytes": 1.0,
    "tx_vport_rdma_unicast_packets": 1 / _PACKET_BYTES,
    "tx_bytes_phy": 1.0,
    "tx_packets_phy": 1 / _PACKET_BYTES,
    "tx_prio3_bytes": 1.0,
    "tx_prio3_packets": 1 / _PACKET_BYTES,
}
# The link carries bits, idle or not: 400 Gbit/s with the overhead of its coding.
_LINE_BITS = 425e9


class Nic:
    """One NIC over time; every count is a pure function of the seed, the NIC and the time.

    Parameters
    ----------
    number
        Which NIC, as in ``mlx5_<number>``.
    scenario
        What happens on the node.
    seed
        Decides the differences between NICs.
    onset
        When the scenario's change begins, in seconds after the start.
    """

    def __init__(self, number: int, scenario: Scenario, seed: int, onset: float) -> None:
        self._fault: NicFault = scenario.nic(number)
        self._onset = onset
        self._activity = scenario.activity(onset)
        # How long the node has trained before, in seconds of traffic at full rate.
        self._age = 2e5 * (1 + 0.02 * noise(seed, "nic", number))
        self._balance = 1 + 0.01 * noise(seed, "balance", number)

    def is_up(self, seconds: float) -> bool:
        """Return whether the link is up."""
        return not self._fault.outages(seconds - self._onset)[1]

    def outages(self, seconds: float) -> int:
        """Return how often the link went down since the start."""
        return self._fault.outages(seconds - self._onset)[0]

    def files(self, seconds: float) -> Mapping[str, int]:
        """Return the counters of sysfs by their path below the port's directory."""
        counts = self._counts(seconds)
        return {f"counters/{name}": counts.get(name, 0) for name in _COUNTERS} | {
            f"hw_counters/{name}": counts.get(name, 0) for name in _HW_COUNTERS
        }

    def carrier_changes(self, seconds: float) -> int:
        """Return how often the link went down or up since the start."""
        outages, is_down = self._fault.outages(seconds - self._onset)
        return 2 * outages - is_down

    def traffic(self, seconds: float) -> tuple[int, int]:
        """Return the words received and sent, as ``files`` has them."""
        busy = self._age + self._activity.total("network", seconds)
        words = busy * _BYTES_PER_SECOND / _WORD_BYTES
        return int(words), int(words * self._balance)

    def statistics(self, seconds: float) -> Mapping[str, int]:
        """Return the statistics of the network driver, in the driver's order."""
        counts = self._counts(seconds)
        counts["rx_bits_phy"] = int(_LINE_BITS * (self._age + seconds))
        for side in ("rd", "wr"):
            share = self._fault.counters.get(f"outbound_pci_stalled_{side}_events", 0.0)
            # Unlike its neighbours no counter: percent of the last second.
            counts[f"outbound_pci_stalled_{side}"] = int(100 * share * (seconds >= self._onset))
        return {name: counts.get(name, 0) for name in _STATISTICS}

    def _counts(self, seconds: float) -> dict[str, int]:
        busy = self._age + self._activity.total("network", seconds)
        received = busy * _BYTES_PER_SECOND
        sent = received * self._balance
        counts = {name: int(received * per_byte) for name, per_byte in _RECEIVED.items()}
        counts |= {name: int(sent * per_byte) for name, per_byte in _SENT.items()}
        counts["port_rcv_data"], counts["port_xmit_data"] = self.traffic(seconds)
        since = max(0.0, seconds - self._onset)
        for name in _BACKGROUND.keys() | self._fault.counters.keys():
            more = self._fault.counters.get(name, 0.0) * since
            counts[name] = int(_BACKGROUND.get(name, 0.0) * busy + more)
        outages = self.outages(seconds)
        for name in ("link_downed", "link_error_recovery", "link_down_events_phy"):
            counts[name] = outages
        return counts
