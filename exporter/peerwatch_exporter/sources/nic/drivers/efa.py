"""Amazon EFA, which has no network interface, and so nothing but RDMA counters."""

from __future__ import annotations

from peerwatch_exporter.sources.nic.driver_table import NicDriver

DRIVER = NicDriver(
    "efa",
    ("drivers/infiniband/hw/efa/efa_verbs.c",),
    rdma={
        "nic_receive_bytes_total": "rx_bytes",
        "nic_transmit_bytes_total": "tx_bytes",
        "nic_receive_packets_total": "rx_pkts",
        "nic_transmit_packets_total": "tx_pkts",
    },
    rdma_errors=(
        "rx_drops",
        "rdma_read_wr_err",
        "rdma_write_wr_err",
        "retrans_pkts",
        "retrans_timeout_events",
        "unresponsive_remote_events",
        "impaired_remote_conn_events",
    ),
)
