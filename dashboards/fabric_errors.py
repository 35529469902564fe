"""The fabric's row about links that go down and packets that are lost or damaged."""

from __future__ import annotations

from links import series_to
from parts import Panel, graph
from promql import CLUSTER, busiest, rate

_NODE = "cluster, node"
_LINKS = series_to("node", "node")


def panels(members: str) -> list[Panel]:
    """Return the panels about links and errors.

    Parameters
    ----------
    members
        Label matchers of the training jobs.
    """
    return [*_faults(members), *_losses(members)]


def _most(members: str, metric: str, by: str = _NODE, count: int = 20) -> str:
    return busiest(rate(metric, CLUSTER, by), count, members=members)


def _lost(members: str, metric: str) -> str:
    """Return how often links of ports were lost in each interval."""
    by_port = "cluster, node, device"
    increase = f"sum by ({by_port}) (increase({metric}{{{CLUSTER}}}[$__rate_interval]))"
    return busiest(increase, members=members)


def _faults(members: str) -> list[Panel]:
    return [
        graph(
            "Links that went down",
            "Times in each interval, by port, the 20 that flap most. The PHY sees flaps too short "
            "for the state. Several ports of one switch: the switch; one port: its cable.",
            "short",
            (_lost(members, "nic_link_downed_total"), "{{node}} {{device}}"),
            (_lost(members, "nic_phy_link_down_events_total"), "{{node}} {{device}}, by the PHY"),
        ).data_links(_LINKS),
        graph(
            "Links that recovered by themselves",
            "Times in each interval that traffic stood still for it, by port, the 20 most: a link "
            "that is about to go down.",
            "short",
            (_lost(members, "nic_link_recoveries_total"), "{{node}} {{device}}"),
        ).data_links(_LINKS),
        graph(
            "Port errors",
            "Per second by the kernel's names, the 20 nodes and types that counted most. "
            "symbol_error and port_rcv_errors: a cable or transceiver.",
            "short",
            (_most(members, "nic_port_errors_total", f"{_NODE}, type"), "{{node}} {{type}}"),
        ).data_links(_LINKS),
        graph(
            "RDMA errors",
            "Retries and transport errors per second, the 20 nodes and types that counted most. "
            "local_ack_timeout_err: the peer does not answer.",
            "short",
            (_most(members, "nic_rdma_errors_total", f"{_NODE}, type"), "{{node}} {{type}}"),
        ).data_links(_LINKS),
    ]


def _losses(members: str) -> list[Panel]:
    return [
        graph(
            "Packets dropped on arrival",
            "By node, the 10 that dropped most of each kind: no buffer on the port, no receive "
            "buffer posted by software, buffer towards PCIe full.",
            "pps",
            (_most(members, "nic_receive_discards_total", count=10), "{{node}} port"),
            (
                _most(members, "nic_receive_out_of_buffer_packets_total", count=10),
                "{{node}} software",
            ),
            (_most(members, "nic_pcie_buffer_overflow_packets_total", count=10), "{{node}} PCIe"),
        ).data_links(_LINKS),
        graph(
            "Packets dropped by priority",
            "By node, priority and reason, the 20 most. Drops in the lossless priority are what "
            "PFC should prevent.",
            "pps",
            (
                _most(members, "nic_priority_discards_total", f"{_NODE}, priority, reason"),
                "{{node}} priority {{priority}}: {{reason}}",
            ),
        ).data_links(_LINKS),
        graph(
            "Packets out of sequence",
            "By node, the 20 most: some were lost on the path, or the fabric sends them over "
            "several ways.",
            "pps",
            (_most(members, "nic_out_of_sequence_packets_total"), "{{node}}"),
        ).data_links(_LINKS),
        graph(
            "Damaged signals",
            "Symbols that could not be repaired, and frames with a wrong checksum, per second, "
            "the 10 nodes with most of each: cables and transceivers.",
            "short",
            (_most(members, "nic_phy_symbol_errors_total", count=10), "{{node}} symbols"),
            (_most(members, "nic_phy_crc_errors_total", count=10), "{{node}} checksums"),
        ).data_links(_LINKS),
    ]
