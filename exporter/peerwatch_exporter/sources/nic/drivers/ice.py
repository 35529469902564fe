"""Intel E800: ice and irdma, which also serves i40e (X722) and idpf (E2000)."""

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
    "ice",
    (
        "drivers/net/ethernet/intel/ice/ice_ethtool.c",
        "drivers/infiniband/hw/irdma/verbs.c",
    ),
    statistics={
        "rx_priority_{priority}_xoff.nic": pfc_frames("receive"),
        "tx_priority_{priority}_xoff.nic": pfc_frames("transmit"),
        "rx_priority_{priority}_xon.nic": pfc_transitions("receive"),
        "tx_priority_{priority}_xon.nic": pfc_transitions("transmit"),
        "link_xoff_rx.nic": link_frames("receive"),
        "link_xoff_tx.nic": link_frames("transmit"),
        "link_xon_rx.nic": link_transitions("receive"),
        "link_xon_tx.nic": link_transitions("transmit"),
        "rx_dropped.nic": Statistic("nic_receive_discards_total"),
        "tx_dropped_link_down.nic": Statistic("nic_transmit_discards_total"),
        "rx_crc_errors.nic": Statistic("nic_phy_crc_errors_total"),
        "mac_local_faults.nic": Statistic("nic_phy_faults_total", ("local",)),
        "mac_remote_faults.nic": Statistic("nic_phy_faults_total", ("remote",)),
    },
    rdma={
        "nic_cnp_sent_total": "cnpSent",
        "nic_cnp_handled_total": "cnpHandled",
        "nic_cnp_ignored_total": "cnpIgnored",
        "nic_ecn_marked_packets_total": "RxECNMrkd",
        "nic_out_of_sequence_packets_total": "Rcvd Out of order packets",
    },
    rdma_errors=(
        "ip4InDiscards",
        "ip6InDiscards",
        "rxVlanErrors",
        # iWARP; Linux 6.18 dropped the prefix.
        "tcpRetransSegs",
        "tcpInProtoErrors",
        "RetransSegs",
        "InProtoErrors",
        # From Linux 6.18 on, of the third generation.
        "RNR sent",
        "RNR received",
        "Nak Sequence Error",
        "Nak Sequence Error Implied",
        "RTO",
        "CRC errors",
    ),
)
