"""Intel 700 (X710, XL710, X722): i40e. Its RDMA driver is irdma, see ice."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import (
    NicDriver,
    Statistic,
    link_frames,
    link_transitions,
    pfc_frames,
    pfc_transitions,
)

# XOFF stops the peer and is a pause frame; XON lets it go. Time is not counted.
DRIVER = NicDriver(
    "i40e",
    ("drivers/net/ethernet/intel/i40e/i40e_ethtool.c",),
    statistics={
        "port.rx_priority_{priority}_xoff_rx": pfc_frames("receive"),
        "port.tx_priority_{priority}_xoff_tx": pfc_frames("transmit"),
        "port.rx_priority_{priority}_xon_rx": pfc_transitions("receive"),
        "port.tx_priority_{priority}_xon_tx": pfc_transitions("transmit"),
        # Up to Linux 4.17, and in Intel's own driver of that time.
        "port.rx_priority_{priority}_xoff": pfc_frames("receive"),
        "port.tx_priority_{priority}_xoff": pfc_frames("transmit"),
        "port.rx_priority_{priority}_xon": pfc_transitions("receive"),
        "port.tx_priority_{priority}_xon": pfc_transitions("transmit"),
        "port.link_xoff_rx": link_frames("receive"),
        "port.link_xoff_tx": link_frames("transmit"),
        "port.link_xon_rx": link_transitions("receive"),
        "port.link_xon_tx": link_transitions("transmit"),
        "port.rx_dropped": Statistic("nic_receive_discards_total"),
        "port.tx_dropped_link_down": Statistic("nic_transmit_discards_total"),
        "port.rx_crc_errors": Statistic("nic_phy_crc_errors_total"),
        "port.mac_local_faults": Statistic("nic_phy_faults_total", ("local",)),
        "port.mac_remote_faults": Statistic("nic_phy_faults_total", ("remote",)),
    },
)
