"""The fleet's row about the responder: what it did, what is out because of it, what stops it."""

from __future__ import annotations

from links import column_to
from parts import (
    GREEN,
    GREY,
    RED,
    YELLOW,
    Panel,
    areas,
    fixed,
    graph,
    levels,
    name,
    number,
    properties,
    rows,
    value_map,
)

_NONE_RUNS = "none runs"
_SHOWN = 50


def panels(fleet: str) -> list[Panel]:
    """Return the panels about responses.

    Parameters
    ----------
    fleet
        Label matchers of all responders.
    """
    return [
        *_now(fleet),
        _outcomes(fleet),
        _waiting(fleet),
        _decisions(fleet),
        _asked(fleet),
        _stuck(fleet),
    ]


def _now(fleet: str) -> list[Panel]:
    def state(title: str, description: str, expr: str, *meanings: tuple[str, str, str]) -> Panel:
        panel = number(title, description, "short", expr).mappings(value_map(*meanings))
        return panel.no_value(_NONE_RUNS)

    return [
        state(
            "Responder",
            "Whether it acts, or only decides and shows what it would do (a dry run).",
            f"min(peerwatch_response_dry_run{{{fleet}}})",
            *(("0", "acts", GREEN), ("1", "dry run", GREY)),
        ),
        state(
            "Breaker",
            "Tripped: too many nodes were wanted at once, and nothing is answered until a person "
            "says resume.",
            f"max(peerwatch_response_breaker_tripped{{{fleet}}})",
            *(("0", "closed", GREEN), ("1", "tripped", RED)),
        ),
        state(
            "Paused",
            "Whether a person has paused it.",
            f"max(peerwatch_response_paused{{{fleet}}})",
            *(("0", "no", GREEN), ("1", "paused", YELLOW)),
        ),
        number(
            "Nodes out",
            "Nodes that are out of work because of responses, those of a dry run included.",
            "short",
            f"sum(peerwatch_response_nodes_out{{{fleet}}})",
        ).no_value(_NONE_RUNS),
        name(
            "Budget left",
            "How many nodes may still be taken out: within an hour, and at once.",
            "short",
            f"min by (budget) (peerwatch_response_budget_remaining{{{fleet}}})",
            "{{budget}}",
        )
        .thresholds(levels(YELLOW, (1, GREEN)))
        .no_value(_NONE_RUNS),
        number(
            "Stuck",
            "Responses that ended half way: a person is needed.",
            "short",
            f"sum(peerwatch_response_stuck{{{fleet}}})",
        )
        .mappings(value_map(("0", "none", GREEN)))
        .thresholds(levels(GREEN, (1, RED)))
        .no_value(_NONE_RUNS),
    ]


def _outcomes(fleet: str) -> Panel:
    colors = {"done": GREEN, "failed": YELLOW, "stuck": RED, "passed": GREEN, "undone": GREY}
    panel = areas(
        "Actions by outcome",
        "Actions that ended in each interval. Failed: nothing was done; stuck: half of it was.",
        "short",
        (
            "sum by (result)"
            f" (increase(peerwatch_response_actions_total{{{fleet}}}[$__rate_interval])) > 0",
            "{{result}}",
        ),
    ).decimals(0)
    for result, color in colors.items():
        panel = panel.override_by_name(result, properties({"color": fixed(color)}))
    return panel.no_value(_NONE_RUNS)


def _waiting(fleet: str) -> Panel:
    return graph(
        "Under way, and what waits for what",
        "Responses under way, and alerts that a rule matches and that wait, by what stands against "
        "them.",
        "short",
        (f"sum(peerwatch_response_pending{{{fleet}}})", "under way"),
        (f"sum by (reason) (peerwatch_response_waiting{{{fleet}}}) > 0", "waits: {{reason}}"),
    ).no_value(_NONE_RUNS)


def _decisions(fleet: str) -> Panel:
    return areas(
        "Decisions",
        "What was decided about alerts in each interval; a change of mind counts again.",
        "short",
        (
            "sum by (decision)"
            f" (increase(peerwatch_response_decisions_total{{{fleet}}}[$__rate_interval]))",
            "{{decision}}",
        ),
    ).no_value(_NONE_RUNS)


def _asked(fleet: str) -> Panel:
    return (
        graph(
            "Servers it asks",
            "1 while a server answers; without an answer nothing is done.",
            "short",
            (f"min by (server) (peerwatch_response_server_up{{{fleet}}})", "{{server}}"),
        )
        .max(1)
        .no_value(_NONE_RUNS)
    )


def _stuck(fleet: str) -> Panel:
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "job_id": "Job",
        "key": "Response",
        "Value": "Stuck",
    }
    return (
        rows(
            "Responses that are stuck",
            "Finish them by hand, or undo them: peerwatch-responder undo, with the response. The "
            f"first {_SHOWN}.",
            columns,
            f"topk({_SHOWN}, max by (cluster, node, job_id, key)"
            f" (peerwatch_response_stuck_info{{{fleet}}}))",
        )
        .no_value("None is stuck.")
        .height(5)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Job", column_to("job", job_id="Job", node="Node"))
        .override_by_name("Stuck", properties({"mappings": value_map(("1", "yes", RED))}))
    )
