"""NVIDIA (Mellanox) ConnectX-4 and later: mlx5_core and mlx5_ib."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import (
    BITS,
    NicDriver,
    Statistic,
    link_frames,
    link_microseconds,
    link_transitions,
    pfc_frames,
    pfc_microseconds,
    pfc_transitions,
)

_LANES = range(4)

DRIVER = NicDriver(
    "mlx5_core",
    (
        "drivers/net/ethernet/mellanox/mlx5/core/en_stats.c",
        "drivers/infiniband/hw/mlx5/counters.c",
    ),
    statistics={
        "rx_prio{priority}_pause": pfc_frames("receive"),
        "tx_prio{priority}_pause": pfc_frames("transmit"),
        "rx_prio{priority}_pause_duration": pfc_microseconds("receive"),
        "tx_prio{priority}_pause_duration": pfc_microseconds("transmit"),
        # The driver counts the first alone today; it has room for the second.
        "rx_prio{priority}_pause_transition": pfc_transitions("receive"),
        "tx_prio{priority}_pause_transition": pfc_transitions("transmit"),
        "rx_global_pause": link_frames("receive"),
        "tx_global_pause": link_frames("transmit"),
        "rx_global_pause_duration": link_microseconds("receive"),
        "tx_global_pause_duration": link_microseconds("transmit"),
        "rx_global_pause_transition": link_transitions("receive"),
        "tx_global_pause_transition": link_transitions("transmit"),
        "tx_pause_storm_warning_events": Statistic("nic_pause_storm_events_total", ("warning",)),
        "tx_pause_storm_error_events": Statistic("nic_pause_storm_events_total", ("error",)),
        "rx_discards_phy": Statistic("nic_receive_discards_total"),
        "tx_discards_phy": Statistic("nic_transmit_discards_total"),
        "rx_out_of_buffer": Statistic("nic_receive_out_of_buffer_packets_total"),
        "rx_prio{priority}_marked": Statistic("nic_priority_ecn_marked_total", ("{priority}",)),
        "rx_prio{priority}_discards": Statistic(
            "nic_priority_discards_total", ("{priority}", "port_buffer")
        ),
        "rx_prio{priority}_buf_discard": Statistic(
            "nic_priority_discards_total", ("{priority}", "host_buffer")
        ),
        "rx_prio{priority}_cong_discard": Statistic(
            "nic_priority_discards_total", ("{priority}", "host_congestion")
        ),
        "outbound_pci_buffer_overflow": Statistic("nic_pcie_buffer_overflow_packets_total"),
        "outbound_pci_stalled_rd_events": Statistic("nic_pcie_stalled_seconds_total", ("read",)),
        "outbound_pci_stalled_wr_events": Statistic("nic_pcie_stalled_seconds_total", ("write",)),
        "rx_pci_signal_integrity": Statistic("nic_pcie_signal_errors_total", ("receive",)),
        "tx_pci_signal_integrity": Statistic("nic_pcie_signal_errors_total", ("transmit",)),
        "link_down_events_phy": Statistic("nic_phy_link_down_events_total"),
        "rx_crc_errors_phy": Statistic("nic_phy_crc_errors_total"),
        "rx_bits_phy": Statistic("nic_phy_received_bytes_total", divisor=BITS),
        "rx_corrected_bits_phy": Statistic("nic_phy_corrected_bit_errors_total"),
        "rx_pcs_symbol_err_phy": Statistic("nic_phy_symbol_errors_total"),
        **{
            f"rx_err_lane_{lane}_phy": Statistic("nic_phy_lane_errors_total", (str(lane),))
            for lane in _LANES
        },
        "module_unplug": Statistic("nic_module_events_total", ("unplugged",)),
        "module_bus_stuck": Statistic("nic_module_events_total", ("bus_stuck",)),
        "module_high_temp": Statistic("nic_module_events_total", ("high_temperature",)),
        "module_bad_shorted": Statistic("nic_module_events_total", ("bad_or_shorted",)),
    },
    rdma={
        "nic_cnp_sent_total": "np_cnp_sent",
        "nic_cnp_handled_total": "rp_cnp_handled",
        "nic_cnp_ignored_total": "rp_cnp_ignored",
        "nic_ecn_marked_packets_total": "np_ecn_marked_roce_packets",
        "nic_out_of_sequence_packets_total": "out_of_sequence",
    },
    rdma_errors=(
        "packet_seq_err",
        "local_ack_timeout_err",
        "implied_nak_seq_err",
        "rnr_nak_retry_err",
        "duplicate_request",
        "out_of_buffer",
        "req_cqe_error",
        "req_cqe_flush_error",
        "req_remote_access_errors",
        "req_remote_invalid_request",
        "resp_cqe_error",
        "resp_cqe_flush_error",
        "resp_local_length_error",
        "resp_remote_access_errors",
        "rx_icrc_encapsulated",
        "roce_adp_retrans",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "roce_slow_restart_cnps",
        "roce_slow_restart_trans",
    ),
)
