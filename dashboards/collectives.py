"""The job's row about its collectives: who launches, who waits, how long they take."""

from __future__ import annotations

from links import column_to
from parts import Panel, areas, graph, rows
from promql import highest, rate

_SHOWN = 20
_NONE = "The ranks report no collectives: the hook is not imported, or the collector is off."


def panels(job: str) -> list[Panel]:
    """Return the panels about collectives.

    Parameters
    ----------
    job
        Label matchers of the job.
    """
    return [_launched(job), _duration(job), _bytes(job), _waiting(job), _behind(job)]


def _launched(job: str) -> Panel:
    return areas(
        "Collectives launched by kind",
        "Per second over all ranks. None while the job runs: all ranks wait.",
        "short",
        (rate("collective_launched_total", job, "collective"), "{{collective}}"),
    ).no_value(_NONE)


def _duration(job: str) -> Panel:
    spent = rate("collective_duration_seconds_total", job, "collective")
    done = rate("collective_completed_total", job, "collective")
    return graph(
        "Time a collective takes",
        "Mean by kind over all ranks, with the time in which a rank waits for the others.",
        "s",
        (f"{spent} / ({done} > 0)", "{{collective}}"),
    ).no_value(_NONE)


def _bytes(job: str) -> Panel:
    return areas(
        "Bytes of collectives",
        "What ranks gave to collectives, by kind, per second.",
        "binBps",
        (rate("collective_bytes_total", job, "collective"), "{{collective}}"),
    ).no_value(_NONE)


def _waiting(job: str) -> Panel:
    return graph(
        "Longest collective under way",
        f"How long a rank has been in its oldest unfinished collective, the {_SHOWN} highest. All "
        "but one for minutes: that one has not come.",
        "s",
        (
            highest(f"collective_in_flight_seconds{{{job}}}", "node, rank, group"),
            "{{node}} {{rank}} {{group}}",
        ),
    ).no_value(_NONE)


def _behind(job: str) -> Panel:
    which = "cluster, node, rank, group"
    last = f'max by ({which}) (collective_last_sequence{{{job}, state="launched"}})'
    foremost = f"max by (cluster, group) ({last})"
    behind = f"{foremost} - on (cluster, group) group_right () {last}"
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "rank": "Rank",
        "group": "Group",
        "Value": "Behind",
    }
    panel = rows(
        "Ranks behind in launching",
        "By how many collectives a rank is behind the foremost of its process group; the "
        f"{_SHOWN} farthest. Who does not launch is who the others wait for.",
        columns,
        f"topk({_SHOWN}, {behind} > 0)",
    ).no_value("No rank is behind, or none reports collectives.")
    return panel.override_by_name("Node", column_to("node", node="Node"))
