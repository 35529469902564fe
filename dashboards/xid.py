"""XID errors of GPUs and SXID errors of NVSwitches: events, a timeline, tables of the latest."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import table

from links import column_to
from parts import DATASOURCE, GREEN, YELLOW, Panel, properties, rows, states, value_map
from promql import of_nodes

_LAST = "gpu_xid_last_timestamp_seconds"
_SHOWN = 50
_DAY = 86400


def annotation(members: str) -> builders.AnnotationQuery:
    """Return the XID errors of the nodes of a training job as events, at the time of each."""
    nodes = f"max by (cluster, node, gpu, xid) ({_LAST})"
    return (
        builders.AnnotationQuery()
        .name("XID errors")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(YELLOW)
        # Grafana's times are in milliseconds.
        .expr(f"{of_nodes(nodes, members)} * 1000")
        .use_value_for_time(True)
        .title_format("{{node}} GPU {{gpu}}: XID {{xid}}")
        .tag_keys("xid")
        .step("10s")
    )


def timeline(node: str) -> Panel:
    """Return when each GPU of a node reported which XID.

    Parameters
    ----------
    node
        Label matchers of the node.
    """
    age = f"time() - max by (gpu, xid) ({_LAST}{{{node}}})"
    return states(
        "XID timeline",
        "Red for a minute from each XID error on, one row for each GPU and code; the 30 newest. "
        "The table below says what they mean.",
        value_map(("0", "before or after", GREEN), ("1", "XID", YELLOW)),
        (
            f"({age} < bool 60) and bottomk(30, {age.replace('}', '} @ end()')})",
            "GPU {{gpu}}: {{xid}}",
        ),
    ).no_value("No XID error in the kernel log.")


def latest(nodes: str) -> Panel:
    """Return a table of the last XIDs with their meaning, the newest first.

    Parameters
    ----------
    nodes
        Label matchers of the nodes.
    """
    which = "cluster, node, gpu, xid"
    meaning = f"max by (cluster, node, xid, class, mnemonic, action) (gpu_xid_info{{{nodes}}})"
    age = f"bottomk({_SHOWN}, time() - max by ({which}) ({_LAST}{{{nodes}}}) < {_DAY})"
    times = f"sum by ({which}) (gpu_xid_errors_total{{{nodes}}}) and on ({which}) {age}"
    joined = "* on (cluster, node, xid) group_left (class, mnemonic, action)"
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "gpu": "GPU",
        "xid": "XID",
        "class": "Class",
        "mnemonic": "Name",
        "action": "Do",
        "Value #A": "Ago",
        "Value #B": "Times",
    }
    panel = rows(
        "Last XID errors",
        f"The {_SHOWN} newest of the last day, one row for each GPU and code, with what NVIDIA "
        "calls them, what to do, and how often the kernel log has them.",
        columns,
        f"{age} {joined} {meaning}",
        f"({times}) {joined} {meaning}",
    )
    return _formatted(panel).no_value("No XID error in the last day.")


def latest_of_switches(nodes: str) -> Panel:
    """Return a table of the last SXIDs with their meaning, the newest first."""
    which = "cluster, node, switch, sxid, severity"
    meaning = (
        f"max by (cluster, node, sxid, class, meaning, action) (nvswitch_sxid_info{{{nodes}}})"
    )
    last = f"max by ({which}) (nvswitch_sxid_last_timestamp_seconds{{{nodes}}})"
    age = f"bottomk({_SHOWN}, time() - {last} < {_DAY})"
    times = f"sum by ({which}) (nvswitch_sxid_errors_total{{{nodes}}}) and on ({which}) {age}"
    joined = "* on (cluster, node, sxid) group_left (class, meaning, action)"
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "switch": "NVSwitch",
        "sxid": "SXID",
        "severity": "Severity",
        "class": "Class",
        "meaning": "Means",
        "action": "Do",
        "Value #A": "Ago",
        "Value #B": "Times",
    }
    panel = rows(
        "Last NVSwitch errors",
        f"The {_SHOWN} newest SXID errors of the last day. A fatal one ends the jobs that use the "
        "switch.",
        columns,
        f"{age} {joined} {meaning}",
        f"({times}) {joined} {meaning}",
    )
    return _formatted(panel).no_value("No NVSwitch reported an error in the last day.")


def _formatted(panel: table.Panel) -> table.Panel:
    """Return a table of errors with its links, its ages, and its classes in colour."""
    colors = value_map(("hardware", "hardware", YELLOW), ("degraded", "degraded", YELLOW))
    return (
        panel.override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Ago", properties({"unit": "s", "decimals": 0}))
        .override_by_name(
            "Class", properties({"mappings": colors, "custom.cellOptions": {"type": "color-text"}})
        )
    )
