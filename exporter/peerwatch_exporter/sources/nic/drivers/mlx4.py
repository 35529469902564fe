"""Mellanox ConnectX-3: mlx4_en and mlx4_ib."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import (
    NicDriver,
    Statistic,
    link_frames,
    link_microseconds,
    link_transitions,
    pfc_frames,
    pfc_microseconds,
    pfc_transitions,
)

DRIVER = NicDriver(
    "mlx4_en",
    (
        "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c",
        "drivers/infiniband/hw/mlx4/main.c",
    ),
    statistics={
        "rx_pause_prio_{priority}": pfc_frames("receive"),
        "tx_pause_prio_{priority}": pfc_frames("transmit"),
        "rx_pause_duration_prio_{priority}": pfc_microseconds("receive"),
        "tx_pause_duration_prio_{priority}": pfc_microseconds("transmit"),
        "rx_pause_transition_prio_{priority}": pfc_transitions("receive"),
        "tx_pause_transition_prio_{priority}": pfc_transitions("transmit"),
        "rx_pause": link_frames("receive"),
        "tx_pause": link_frames("transmit"),
        "rx_pause_duration": link_microseconds("receive"),
        "tx_pause_duration": link_microseconds("transmit"),
        "rx_pause_transition": link_transitions("receive"),
        "tx_pause_transition": link_transitions("transmit"),
        "rx_crc_errors": Statistic("nic_phy_crc_errors_total"),
    },
    rdma={"nic_out_of_sequence_packets_total": "rq_num_oos"},
    rdma_errors=(
        "rq_num_dup",
        "rq_num_rnr",
        "sq_num_oos",
        "sq_num_rnr",
        "sq_num_rree",
        "sq_num_to",
        "sq_num_tree",
    ),
)
