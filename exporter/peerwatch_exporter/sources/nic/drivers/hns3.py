"""HiSilicon (Kunpeng, HIP08 and later): hns3."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import (
    NicDriver,
    Statistic,
    link_frames,
    pfc_frames,
)

# It also has ..._xoff_time, in a unit that neither the driver nor its documentation tells.
DRIVER = NicDriver(
    "hns3",
    ("drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_main.c",),
    statistics={
        "mac_rx_pfc_pri{priority}_pkt_num": pfc_frames("receive"),
        "mac_tx_pfc_pri{priority}_pkt_num": pfc_frames("transmit"),
        "mac_rx_mac_pause_num": link_frames("receive"),
        "mac_tx_mac_pause_num": link_frames("transmit"),
        "mac_rx_fcs_err_pkt_num": Statistic("nic_phy_crc_errors_total"),
    },
)
