"""The fabric's row about pause frames: which nodes stop whom, for how long, in which priority."""

from __future__ import annotations

from links import series_to
from parts import Panel, graph, heat
from promql import CLUSTER, busiest, of_nodes, rate

_NODE = "cluster, node"
_SECONDS, _FRAMES = "nic_pfc_pause_seconds_total", "nic_pfc_pause_frames_total"
_LINKS = series_to("node", "node")


def panels(members: str) -> list[Panel]:
    """Return the panels about pauses.

    Parameters
    ----------
    members
        Label matchers of the training jobs.
    """
    return [*_nodes(members), *_kinds(members), *_whole_links()]


def _most(metric: str, direction: str, members: str, count: int = 20) -> str:
    """Return the nodes that counted most in a direction."""
    matchers = f'{CLUSTER}, direction="{direction}"'
    return busiest(rate(metric, matchers, _NODE), count, members=members)


def _by_priority(metric: str, members: str) -> str:
    per_node = rate(metric, CLUSTER, f"{_NODE}, direction, priority")
    return f"sum by (direction, priority) ({of_nodes(per_node, members)})"


def _nodes(members: str) -> list[Panel]:
    return [
        heat(
            "Who stops its peers",
            "Seconds of pauses sent per second, by node: from green (none) to red (a port and "
            "priority all of the time). The 30 that sent most in the time range.",
            "percentunit",
            _most(_SECONDS, "transmit", members, 30),
            "{{node}}",
        ).data_links(_LINKS),
        graph(
            "Who is stopped",
            "Seconds for which the fabric stopped a node, per second and over its ports; the 20 "
            "most. Many at once: find the one above that stops them.",
            "percentunit",
            (_most(_SECONDS, "receive", members), "{{node}}"),
        ).data_links(_LINKS),
        graph(
            "Pause frames sent",
            "Frames per second by node, the 20 that sent most.",
            "pps",
            (_most(_FRAMES, "transmit", members), "{{node}}"),
        ).data_links(_LINKS),
    ]


def _kinds(members: str) -> list[Panel]:
    return [
        graph(
            "Pauses by priority",
            "How many ports are paused, on average. RoCE should pause in its own priority only: "
            "another one is set up differently somewhere.",
            "short",
            (_by_priority(_SECONDS, members), "{{direction}} priority {{priority}}"),
        ),
        graph(
            "Pause storms",
            "What NICs reported of themselves, per second, by node, the 10 most. Warning: the host "
            "drains the NIC too slowly; error: the NIC has given up and drops.",
            "short",
            (
                busiest(
                    rate("nic_pause_storm_events_total", CLUSTER, f"{_NODE}, severity"),
                    10,
                    members=members,
                ),
                "{{node}} {{severity}}",
            ),
        ).data_links(_LINKS),
        graph(
            "Pauses let go again",
            "Times per second that a stopped priority was let go, by node, the 10 most: many short "
            "stops are a queue at its limit, few long ones a receiver that stands still.",
            "short",
            (
                busiest(
                    rate("nic_pfc_pause_transitions_total", CLUSTER, _NODE), 10, members=members
                ),
                "{{node}}",
            ),
            (
                busiest(
                    rate("nic_global_pause_transitions_total", CLUSTER, _NODE), 10, members=members
                ),
                "{{node}} whole link",
            ),
        )
        .span(8)
        .data_links(_LINKS),
    ]


def _whole_links() -> list[Panel]:
    return [
        graph(
            "Pauses of whole links",
            "How many links are stopped as a whole, on average; PFC should have replaced that.",
            "short",
            (
                f"sum by (direction) (rate(nic_global_pause_seconds_total{{{CLUSTER}}}"
                "[$__rate_interval]))",
                "{{direction}}",
            ),
        ).span(8),
        graph(
            "Pause frames of whole links",
            "Frames per second that stop a whole link, by direction.",
            "pps",
            (
                f"sum by (direction) (rate(nic_global_pause_frames_total{{{CLUSTER}}}"
                "[$__rate_interval]))",
                "{{direction}}",
            ),
        ).span(8),
    ]
