"""AMD Pensando (Pollara, DSC): ionic and ionic_rdma."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import (
    BITS,
    NicDriver,
    Statistic,
    link_frames,
    link_microseconds,
    pfc_microseconds,
)

# Frames of a priority are not counted, only those of all; but the time of each is.
DRIVER = NicDriver(
    "ionic",
    (
        "drivers/net/ethernet/pensando/ionic/ionic_stats.c",
        # The driver passes on the names of its firmware.
        "drivers/infiniband/hw/ionic/ionic_hw_stats.c",
    ),
    statistics={
        "rx_pripause_{priority}_1us_count": pfc_microseconds("receive"),
        "tx_pripause_{priority}_1us_count": pfc_microseconds("transmit"),
        "frames_rx_pripause": Statistic("nic_pfc_pause_frames_total", ("receive", "all")),
        "frames_tx_pripause": Statistic("nic_pfc_pause_frames_total", ("transmit", "all")),
        "frames_rx_pause": link_frames("receive"),
        "frames_tx_pause": link_frames("transmit"),
        "rx_pause_1us_count": link_microseconds("receive"),
        "frames_rx_dropped": Statistic("nic_receive_discards_total"),
        "hw_tx_dropped": Statistic("nic_transmit_discards_total"),
        "hw_rx_missed_errors": Statistic("nic_receive_out_of_buffer_packets_total"),
        "frames_rx_bad_fcs": Statistic("nic_phy_crc_errors_total"),
        "rx_bits_phy": Statistic("nic_phy_received_bytes_total", divisor=BITS),
    },
    rdma={
        "nic_receive_bytes_total": "rx_rdma_ucast_bytes",
        "nic_transmit_bytes_total": "tx_rdma_ucast_bytes",
        "nic_receive_packets_total": "rx_rdma_ucast_pkts",
        "nic_transmit_packets_total": "tx_rdma_ucast_pkts",
        "nic_cnp_sent_total": "tx_rdma_cnp_pkts",
        "nic_cnp_handled_total": "rx_rdma_cnp_pkts",
        "nic_ecn_marked_packets_total": "rx_rdma_ecn_pkts",
        "nic_out_of_sequence_packets_total": "resp_rx_outouf_seq",
    },
    rdma_errors=(
        "tx_rdma_ack_timeout",
        "tx_rdma_retx_pkts",
        "req_rx_pkt_seq_err",
        "req_rx_rnr_retry_err",
        "req_rx_rmt_acc_err",
        "req_rx_rmt_req_err",
        "req_rx_oper_err",
        "req_rx_impl_nak_seq_err",
        "req_rx_cqe_err",
        "req_rx_cqe_flush",
        "req_rx_dup_response",
        "req_tx_loc_oper_err",
        "req_tx_retry_excd_err",
        "resp_rx_dup_request",
        "resp_rx_outof_buf",
        "resp_rx_cqe_err",
        "resp_tx_pkt_seq_err",
    ),
)
