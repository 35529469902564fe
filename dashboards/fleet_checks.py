"""The fleet's row about active checks: how they ended, how old that is, values against peers."""

from __future__ import annotations

from links import column_to
from parts import GREEN, GREY, RED, YELLOW, Panel, matrix, properties, rows, thresholds, value_map

_NODES = 50
_ROWS = 30
_PASS, _WARN, _FAIL, _ERROR, _SKIPPED = range(5)
_STATES = value_map(
    (str(_PASS), "pass", GREEN),
    (str(_WARN), "warn", YELLOW),
    (str(_FAIL), "FAIL", RED),
    (str(_ERROR), "error", GREY),
    (str(_SKIPPED), "skipped", GREY),
)
# Of the same hardware only; a device is tested alike on all nodes.
_ALIKE = "check, device, unit, gpu_model, cpu_model"


def panels(fleet: str) -> list[Panel]:
    """Return the panels about what ``peerwatch-check`` found.

    Parameters
    ----------
    fleet
        Label matchers of all nodes.
    """
    return [_by_node(fleet), _oldest(fleet), _values(fleet)]


def of_node(node: str) -> list[Panel]:
    """Return how the checks of one node ended, and when; its peers are on the fleet's dashboard."""
    return [_by_node(node).height(5), _oldest(node).span(24)]


def _by_node(fleet: str) -> Panel:
    # In tests of several nodes what has a device is said of others.
    of_one, of_several = 'scope!~"pair|multi"', 'scope=~"pair|multi",device=""'
    status = (
        f"(peerwatch_check_status{{{fleet},{of_one}}} or "
        f"peerwatch_check_status{{{fleet},{of_several}}})"
    )
    worst = f"topk({_NODES}, sum by (cluster, node) (0 < ({status} < {_ERROR})) or 0 * "
    worst += f"count by (cluster, node) ({status}))"
    # Of a check's devices the worst, which is not the highest value.
    states = " or ".join(
        f"max by (node, check) ({status} == {value} and on (cluster, node) {worst})"
        for value in (_FAIL, _WARN, _ERROR, _SKIPPED, _PASS)
    )
    return (
        matrix(
            "Checks by node",
            f"How each check of a node ended when it last ran: the {_NODES} nodes with the most "
            "failures. Error: the check itself did not work; skipped: it did not run, or had "
            "nothing to compare with. Neither speaks of the node.",
            "short",
            ("node", "check"),
            states,
            heading="Node",
        )
        .mappings(_STATES)
        .thresholds(thresholds((None, GREEN)))
        .no_value("No results of peerwatch-check.")
        .span(24)
        .override_by_name("Node", column_to("node", node="Node"))
    )


def _oldest(fleet: str) -> Panel:
    last_run = (
        f"max by (cluster, node, check) (peerwatch_check_last_run_timestamp_seconds{{{fleet}}})"
    )
    columns = {"cluster": "Cluster", "node": "Node", "check": "Check", "Value": "Age"}
    return (
        rows(
            "Oldest results",
            f"The {_ROWS} checks of nodes that ran longest ago. What is older than a day is "
            "unknown: the node may have been repaired, or has broken since.",
            columns,
            f"topk({_ROWS}, time() - {last_run})",
        )
        .no_value("No results of peerwatch-check.")
        .height(8)
        .span(9)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Age", properties({"unit": "s", "decimals": 0}))
    )


def _values(fleet: str) -> Panel:
    value = f"max by (cluster, node, {_ALIKE}) (peerwatch_check_value{{{fleet}}})"
    median = f"quantile by ({_ALIKE}) (0.5, {value})"
    lowest = f"bottomk({_ROWS}, {value} / on ({_ALIKE}) group_left () ({median} > 0))"
    here = f"and on (cluster, node, {_ALIKE}) {lowest}"
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "check": "Check",
        "device": "Device",
        "gpu_model": "GPU",
        "cpu_model": "CPU",
        "Value #A": "Of the median",
        "Value #B": "Measured",
        "unit": "Unit",
        "Value #C": "Nodes",
    }
    return (
        rows(
            "Values against peers",
            f"What checks measured, as a share of the median of nodes with the same GPU and CPU "
            f"models; the {_ROWS} lowest. Nodes: how many measured it.",
            columns,
            lowest,
            f"{value} {here}",
            f"({value} * 0 + on ({_ALIKE}) group_left () count by ({_ALIKE}) ({value})) {here}",
        )
        .no_value("No check has measured anything.")
        .height(8)
        .span(15)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Of the median", properties({"unit": "percentunit", "decimals": 0}))
    )
