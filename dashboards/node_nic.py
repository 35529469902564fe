"""The node's row about its RDMA ports: traffic, pauses, congestion, errors."""

from __future__ import annotations

from parts import Panel, graph, rows
from promql import busiest, rate

_PORT = "{{device}}"


def panels(node: str) -> list[Panel]:
    """Return the panels about RDMA ports.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    return [
        *(panel.span(8) for panel in (*_traffic(node), *_pauses(node))),
        *_errors(node),
        *_signals(node),
        *(panel.span(8) for panel in _bursts(node)),
        _ports(node),
    ]


def _traffic(node: str) -> list[Panel]:
    return [
        graph(
            "Sent",
            "RDMA bytes sent by each port. All ports of a training node send alike.",
            "binBps",
            (rate("nic_transmit_bytes_total", node, "device"), _PORT),
        ),
        graph(
            "Received",
            "RDMA bytes received by each port.",
            "binBps",
            (rate("nic_receive_bytes_total", node, "device"), _PORT),
        ),
        graph(
            "Packets",
            "Sent and received by all ports together. Many small ones cost a NIC more than few "
            "large.",
            "pps",
            (f"sum(rate(nic_transmit_packets_total{{{node}}}[$__rate_interval]))", "sent"),
            (f"sum(rate(nic_receive_packets_total{{{node}}}[$__rate_interval]))", "received"),
        ),
    ]


def _pauses(node: str) -> list[Panel]:
    return [
        graph(
            "Time stopped by pause frames",
            "Share of time in which a priority of a port stood still. Transmit: this node stops "
            "its peers, check its PCIe and memory. Receive: the fabric stops this node.",
            "percentunit",
            (
                busiest(rate("nic_pfc_pause_seconds_total", node, "device, direction, priority")),
                "{{device}} {{direction}} priority {{priority}}",
            ),
            (
                busiest(rate("nic_global_pause_seconds_total", node, "device, direction"), 5),
                "{{device}} {{direction}} whole link",
            ),
        ),
        graph(
            "Congestion",
            "Packets that arrived with a congestion mark, and congestion notifications sent, "
            "obeyed and ignored, over all ports.",
            "pps",
            *(
                (f"sum(rate({metric}{{{node}}}[$__rate_interval]))", legend)
                for metric, legend in (
                    ("nic_ecn_marked_packets_total", "marked packets"),
                    ("nic_cnp_sent_total", "notifications sent"),
                    ("nic_cnp_handled_total", "obeyed"),
                    ("nic_cnp_ignored_total", "ignored"),
                )
            ),
        ),
        graph(
            "Waits for PCIe and for credit",
            "Seconds per second in which a port waited for PCIe credits more than 30 % of the time "
            "(the host is the bottleneck), by port.",
            "percentunit",
            (
                rate("nic_pcie_stalled_seconds_total", node, "device, operation"),
                "{{device}} {{operation}}",
            ),
        ),
    ]


def _errors(node: str) -> list[Panel]:
    return [
        graph(
            "Errors per second",
            "Port and RDMA errors by the kernel's names, the 20 that counted most of each. "
            "docs/metrics.md says what they mean.",
            "short",
            (busiest(rate("nic_port_errors_total", node, "device, type")), "{{device}} {{type}}"),
            (busiest(rate("nic_rdma_errors_total", node, "device, type")), "{{device}} {{type}}"),
        ),
        graph(
            "Drops per second",
            "Packets dropped on arrival, by reason, over all ports; and packets out of sequence, "
            "which somebody else dropped.",
            "pps",
            *(
                (f"sum(rate({metric}{{{node}}}[$__rate_interval]))", legend)
                for metric, legend in (
                    ("nic_receive_discards_total", "no buffer on the port"),
                    ("nic_receive_out_of_buffer_packets_total", "no receive buffer posted"),
                    ("nic_pcie_buffer_overflow_packets_total", "buffer to PCIe full"),
                    ("nic_out_of_sequence_packets_total", "out of sequence"),
                )
            ),
        ),
    ]


def _signals(node: str) -> list[Panel]:
    return [
        graph(
            "Bits repaired by error correction",
            "As a share of the bits that could have been received, by port. Some are normal; "
            "a port with many more than the others has a dirty or loose cable.",
            "sci",
            (
                rate("nic_phy_corrected_bit_errors_total", node, "device")
                + " / (8 * "
                + rate("nic_phy_received_bytes_total", node, "device")
                + " > 0)",
                _PORT,
            ),
        ),
        graph(
            "Damaged signals",
            "Per second, by port: symbols that could not be repaired and frames with a wrong "
            "checksum (cable, transceiver), errors of the PCIe signal (slot, riser). The 10 that "
            "counted most of each.",
            "short",
            (
                busiest(rate("nic_phy_symbol_errors_total", node, "device"), 10),
                "{{device}} symbols",
            ),
            (busiest(rate("nic_phy_crc_errors_total", node, "device"), 10), "{{device}} checksums"),
            (
                busiest(rate("nic_pcie_signal_errors_total", node, "device, direction"), 10),
                "{{device}} PCIe {{direction}}",
            ),
        ),
    ]


def _bursts(node: str) -> list[Panel]:
    """Return what only the sampler sees."""
    off = "The sampler is off: sampler.interval_milliseconds"
    return [
        graph(
            "Bursts between two scrapes",
            "Bytes per second between two samples, of the port with the highest: what a scrape "
            "averages away.",
            "binBps",
            (
                f"max by (statistic) (nic_burst_transmit_bytes_per_second{{{node}}})",
                "sent, {{statistic}}",
            ),
            (
                f"max by (statistic) (nic_burst_receive_bytes_per_second{{{node}}})",
                "received, {{statistic}}",
            ),
        ).no_value(off),
        graph(
            "Share of samples at line rate or paused",
            "Of the sampler's samples: the busiest port at line rate, and the port whose counter "
            "rose most often. Pauses that rose in half of the samples are a port that stands still "
            "half of the time.",
            "percentunit",
            (
                f"max by (direction) (nic_burst_line_rate_ratio{{{node}}})",
                "line rate, {{direction}}",
            ),
            (
                "max by (counter)"
                f' (nic_burst_active_ratio{{{node}, counter=~".*pause.*|.*cnp.*|.*ecn.*"}})',
                "{{counter}}",
            ),
        )
        .max(1)
        .no_value(off),
        graph(
            "Pauses and marks between two scrapes",
            "Highest rates between two samples over all ports: pause frames, congestion marks and "
            "notifications that a scrape averages away.",
            "pps",
            (
                "max by (direction)"
                f' (nic_burst_pfc_pause_frames_per_second{{{node}, statistic="max"}})',
                "pause frames, {{direction}}",
            ),
            (
                f'max(nic_burst_ecn_marked_packets_per_second{{{node}, statistic="max"}})',
                "marked packets",
            ),
            (
                f'max by (direction) (nic_burst_cnp_packets_per_second{{{node}, statistic="max"}})',
                "notifications, {{direction}}",
            ),
        ).no_value(off),
    ]


def _ports(node: str) -> Panel:
    port = "device, port, link_layer, netdev, bdf, fw, board_id, gpu"
    information = f"max by ({port}) (nic_port_info{{{node}}})"

    def joined(metric: str) -> str:
        value = f"max by (device, port) ({metric}{{{node}}})"
        return f"{information} * on (device, port) group_left () {value}"

    columns = {
        "device": "Port",
        "port": "Number",
        "netdev": "Interface",
        "link_layer": "Layer",
        "gpu": "GPU beside it",
        "bdf": "PCI",
        "board_id": "Board",
        "fw": "Firmware",
        "Value #A": "State (4 is active)",
        "Value #B": "Physical state (5 is up)",
        "Value #C": "Bytes per second it can",
        "Value #D": "Link losses",
        "Value #E": "Seen by the PHY",
        "Value #F": "Recoveries",
        "Value #G": "Warnings of pause storms",
    }
    return rows(
        "Ports",
        "Every RDMA port, its states and what happened to its link since the driver was loaded. "
        "Different firmware or a lower speed on one port is worth a check.",
        columns,
        joined("nic_port_state"),
        joined("nic_port_physical_state"),
        joined("nic_port_rate_bytes_per_second"),
        joined("nic_link_downed_total"),
        joined("nic_phy_link_down_events_total"),
        joined("nic_link_recoveries_total"),
        joined("nic_pause_storm_events_total"),
    ).no_value("The node has no RDMA port.")
