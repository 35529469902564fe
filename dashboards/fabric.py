"""The fabric dashboard: pauses, congestion, links and traffic of all RDMA ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import alerts
import fabric_errors
import fabric_pauses
import fabric_traffic
import variables
from board import board
from links import column_to
from parts import GREEN, RED, YELLOW, Panel, count, levels, name, properties, rows
from promql import CLUSTER, of_nodes

if TYPE_CHECKING:
    from grafana_foundation_sdk.models import dashboard as models

# Nodes without a job have no label job_id; ".*" of All takes them in.
MEMBERS = f'{CLUSTER}, job_id=~"$job_id"'
_PORT = "cluster, node, device, port"
_PORTS = f"nic_port_state{{{CLUSTER}}}"

_SEEN = f"exporter_build_info{{{CLUSTER}}}"


def fabric_dashboard() -> models.Dashboard:
    """Return the fabric dashboard."""
    return board(
        "fabric",
        "Fabric",
        "RDMA ports of all nodes: who stops whom, where it is congested, which links flap.",
        [
            variables.datasource(),
            variables.cluster("exporter_build_info"),
            variables.any_job(),
        ],
        {
            "Is the fabric well": [*_now(), alerts.firing(alerts.about(CLUSTER)), _worst_ports()],
            "Pauses": fabric_pauses.panels(MEMBERS),
            "Congestion and traffic": fabric_traffic.panels(MEMBERS),
            "Links and errors": fabric_errors.panels(MEMBERS),
        },
        since="now-1h",
    )


def _now() -> list[Panel]:
    down = f"min by ({_PORT}) (nic_port_state{{{CLUSTER}}}) < 4"
    flapped = f"max by ({_PORT}) (increase(nic_link_downed_total{{{CLUSTER}}}[15m])) > 0"
    marked = (
        "sum by (cluster, node)"
        f" (rate(nic_ecn_marked_packets_total{{{CLUSTER}}}[$__rate_interval])) > 10000"
    )
    dropping = (
        "sum by (cluster, node)"
        f" (rate(nic_receive_discards_total{{{CLUSTER}}}[$__rate_interval])) > 1"
    )
    ignored = (
        f"sum by (cluster, node) (rate(nic_cnp_ignored_total{{{CLUSTER}}}[$__rate_interval])) > 1"
    )
    facts = (
        ("Ports down", "RDMA ports that are not active.", down, RED),
        (
            "Ports that flapped",
            "Ports whose link went down in the last 15 minutes.",
            flapped,
            YELLOW,
        ),
        (
            "Congested nodes",
            "Nodes that receive more than 10,000 packets per second with a congestion mark.",
            marked,
            YELLOW,
        ),
        (
            "Nodes that drop packets",
            "Nodes whose ports drop what arrives for want of buffer, more than one per second.",
            dropping,
            YELLOW,
        ),
        (
            "Nodes that ignore congestion",
            "Nodes that receive congestion notifications and do not slow down: congestion control "
            "is off or set up differently there.",
            ignored,
            YELLOW,
        ),
    )
    counts = [
        count(title, description, f"count({of_nodes(what, MEMBERS)})", _PORTS, color)
        for title, description, what, color in facts
    ]
    down_now, flapped_lately, *others = counts
    return [
        *(panel.span(4) for panel in alerts.counts(alerts.about(CLUSTER), _SEEN)),
        _worst_port().span(8),
        *(down_now, flapped_lately),
        *(panel.span(8) for panel in others),
    ]


def _worst_port() -> Panel:
    sent = f'nic_pfc_pause_seconds_total{{{CLUSTER}, direction="transmit"}}'
    stops = f"sum by (cluster, node, device) (rate({sent}[$__rate_interval]))"
    return (
        name(
            "Stops its peers most",
            "The port that sends pauses the largest share of the time: from a tenth on it slows "
            "the job, from a half on it is a PFC storm.",
            "percentunit",
            f"topk(1, {of_nodes(stops, MEMBERS)})",
            "{{node}} {{device}}",
        )
        .no_value("no port")
        .thresholds(levels(GREEN, (0.1, YELLOW), (0.5, RED)))
    )


def _worst_ports() -> Panel:
    window = "[$__rate_interval]"
    sent = f'nic_pfc_pause_seconds_total{{{CLUSTER}, direction="transmit"}}'
    stops = of_nodes(f"sum by ({_PORT}) (rate({sent}{window}))", MEMBERS)
    worst = f"topk(30, {stops} > 0.01)"

    def of(series: str) -> str:
        value = f"sum by ({_PORT}) (rate({series}{window}))"
        return f"{value} and on ({_PORT}) {worst}"

    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "device": "Port",
        "port": "Number",
        "Value #A": "Stops its peers",
        "Value #B": "Is stopped",
        "Value #C": "Waits for PCIe",
        "Value #D": "Drops per second",
    }
    share = properties({"unit": "percentunit", "decimals": 0})
    return (
        rows(
            "Which ports stop their peers",
            "The 30 that send pauses most of the time, above 1 %. A port that waits for PCIe as "
            "well cannot empty its buffer: check the node, not the switch.",
            columns,
            worst,
            of(f'nic_pfc_pause_seconds_total{{{CLUSTER}, direction="receive"}}'),
            of(f"nic_pcie_stalled_seconds_total{{{CLUSTER}}}"),
            of(f"nic_receive_discards_total{{{CLUSTER}}}"),
        )
        .no_value("No port stops its peers.")
        .height(6)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Stops its peers", share)
        .override_by_name("Is stopped", share)
        .override_by_name("Waits for PCIe", share)
        .override_by_name("Drops per second", properties({"decimals": 0}))
    )
