"""The fleet's row about GPUs: which are missing, and which errors they reported."""

from __future__ import annotations

import xid
from links import column_to
from parts import GREY, RED, YELLOW, Panel, areas, fixed, properties, rows

_SHOWN = 50


def panels(fleet: str) -> list[Panel]:
    """Return the panels about GPUs and XIDs.

    Parameters
    ----------
    fleet
        Label matchers of all nodes.
    """
    return [_missing(fleet), _by_class(fleet), xid.latest(fleet)]


def _missing(fleet: str) -> Panel:
    node = "cluster, node"
    expected = f"max by ({node}) (gpus_expected{{{fleet}}})"
    # A count that is not there is none that answers, not one that need not be subtracted.
    visible = f"(max by ({node}) (gpus_visible{{{fleet}}}) or 0 * {expected})"
    missing = f"topk({_SHOWN}, {expected} - {visible} > 0)"
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "Value #A": "Missing",
        "Value #B": "Expected",
        "Value #C": "Driver's word for lost",
    }
    return (
        rows(
            "Nodes with fewer GPUs than they should have",
            f"The {_SHOWN} that miss most. A GPU that the driver calls lost has fallen off the "
            "bus.",
            columns,
            missing,
            f"{expected} and on ({node}) {missing}",
            f"sum by ({node}) (gpu_lost{{{fleet}}}) and on ({node}) {missing}",
        )
        .no_value("Every node has all of its GPUs.")
        .height(8)
        .span(12)
        .override_by_name("Node", column_to("node", node="Node"))
    )


def _by_class(fleet: str) -> Panel:
    colors = {
        "hardware": RED,
        "degraded": YELLOW,
        "watch": "blue",
        "application": "purple",
        "ignore": GREY,
    }
    panel = (
        areas(
            "XID errors by class",
            "Errors in each interval. Hardware: drain the node now; degraded: when its job ends; "
            "watch: the GPU dealt with it; application: programs cause these.",
            "short",
            (
                "sum by (class)"
                f" (increase(gpu_xid_class_errors_total{{{fleet}}}[$__rate_interval])) > 0",
                "{{class}}",
            ),
        )
        .decimals(0)
        .no_value("No XID error.")
    )
    for name, color in colors.items():
        panel = panel.override_by_name(name, properties({"color": fixed(color)}))
    return panel
