"""Broadcom NetXtreme-E (Thor and earlier): bnxt_en and bnxt_re."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import (
    BITS,
    NicDriver,
    Statistic,
    link_frames,
    pfc_frames,
    pfc_microseconds,
    pfc_transitions,
)

# Rings drop what found no posted buffer. Linux 6.8 renamed the sum over them.
_NO_BUFFER = Statistic("nic_receive_out_of_buffer_packets_total")

DRIVER = NicDriver(
    "bnxt_en",
    (
        "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c",
        "drivers/infiniband/hw/bnxt_re/hw_counters.c",
    ),
    statistics={
        "rx_pfc_ena_frames_pri{priority}": pfc_frames("receive"),
        "tx_pfc_ena_frames_pri{priority}": pfc_frames("transmit"),
        "pfc_pri{priority}_rx_duration_us": pfc_microseconds("receive"),
        "pfc_pri{priority}_tx_duration_us": pfc_microseconds("transmit"),
        "pfc_pri{priority}_rx_transitions": pfc_transitions("receive"),
        "pfc_pri{priority}_tx_transitions": pfc_transitions("transmit"),
        "rx_pause_frames": link_frames("receive"),
        "tx_pause_frames": link_frames("transmit"),
        "rx_stat_discard": Statistic("nic_receive_discards_total"),
        "tx_stat_discard": Statistic("nic_transmit_discards_total"),
        "rx_total_ring_discards": _NO_BUFFER,
        "rx_total_discard_pkts": _NO_BUFFER,
        "link_down_events": Statistic("nic_phy_link_down_events_total"),
        "rx_fcs_err_frames": Statistic("nic_phy_crc_errors_total"),
        "rx_bits": Statistic("nic_phy_received_bytes_total", divisor=BITS),
        "rx_corrected_bits": Statistic("nic_phy_corrected_bit_errors_total"),
        "rx_pcs_symbol_err": Statistic("nic_phy_symbol_errors_total"),
        "rx_fec_corrected_blocks": Statistic("nic_phy_fec_corrected_blocks_total"),
        "rx_fec_uncorrectable_blocks": Statistic("nic_phy_fec_uncorrectable_blocks_total"),
    },
    rdma={
        "nic_receive_bytes_total": "rx_bytes",
        "nic_transmit_bytes_total": "tx_bytes",
        "nic_receive_packets_total": "rx_pkts",
        "nic_transmit_packets_total": "tx_pkts",
        # Drivers that Broadcom ships beside the kernel's.
        "nic_cnp_sent_total": "tx_cnp_pkts",
        "nic_cnp_handled_total": "rx_cnp_pkts",
        "nic_ecn_marked_packets_total": "rx_ecn_marked_pkts",
        "nic_out_of_sequence_packets_total": "oos_drop_count",
    },
    rdma_errors=(
        "to_retransmits",
        "seq_err_naks_rcvd",
        "max_retry_exceeded",
        "rnr_naks_rcvd",
        "missing_resp",
        "rx_roce_errors",
        "rx_roce_discards",
        "rx_out_of_buffer",
        "dup_req",
        "unrecoverable_err",
        "bad_resp_err",
        "local_qp_op_err",
        "local_protection_err",
        "remote_invalid_req_err",
        "remote_access_err",
        "remote_op_err",
    ),
)
