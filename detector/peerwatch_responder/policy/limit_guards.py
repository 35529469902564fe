"""Guards about all of it: how much is done, and whether something larger is wrong."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from peerwatch_responder.policy.case import Objection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_responder.policy.case import Case, Guard
    from peerwatch_responder.policy.state import Response, State
    from peerwatch_responder.settings.policy import BudgetConfig

# Of budget.nodes_per_hour and budget.nodes_per_job.
_HOUR = 3600.0
# Nothing was done to the node, or it passed its checks.
_NOT_TAKEN = {"refused", "passed"}


def is_not_paused(case: Case) -> Objection | None:
    """Object while a person has paused everything."""
    if case.state.paused is None:
        return None
    return Objection("wait", "paused", f"Paused: {case.state.paused}")


def breaker_is_closed(case: Case) -> Objection | None:
    """Object after many nodes at once: a broken check or network, not many broken nodes."""
    tripped = case.state.tripped_at
    if tripped is None:
        return None
    ago = case.now - tripped
    text = f"The breaker tripped {ago:.0f} s ago; `peerwatch-responder resume` resets it."
    return Objection("wait", "breaker", text)


def alert_has_stood(case: Case) -> Objection | None:
    """Object for a while: the first alert of several is not alone for long."""
    age = case.now - case.alert.starts_at
    limit = case.settings.settle_seconds
    if age >= limit:
        return None
    text = f"It began {max(age, 0):.0f} s ago; settle_seconds is {limit:.0f}."
    return Objection("wait", "settling", text)


def is_the_only_suspect(case: Case) -> Objection | None:
    """Object to several nodes of a job at once (Aegis isolates 2 at most, then looks on)."""
    suspects = sorted(case.suspects)
    limit = case.settings.suspects_per_job
    if len(suspects) <= limit:
        return None
    shown = ", ".join(suspects[:10]) + (", ..." if len(suspects) > 10 else "")
    text = (
        f"{len(suspects)} nodes of job {case.alert.job_id} are named at once ({shown}); "
        f"suspects_per_job is {limit}. The fault may be the job's or the network's."
    )
    return Objection("wait", "several_suspects", text)


def job_has_budget(case: Case) -> Objection | None:
    """Object to taking many nodes from one job within an hour."""
    job = case.alert.cluster, case.alert.job_id
    if not case.alert.job_id:
        return None
    nodes = _nodes(
        each for each in _of_last_hour(case.state, case.now) if (each.cluster, each.job_id) == job
    )
    limit = case.settings.budget.nodes_per_job
    if len(nodes) < limit:
        return None
    text = (
        f"{len(nodes)} of the nodes of job {case.alert.job_id} were taken out within an hour; "
        f"budget.nodes_per_job is {limit}."
    )
    return Objection("wait", "budget_job", text)


def hour_has_budget(case: Case) -> Objection | None:
    """Object to taking many nodes from the cluster within an hour."""
    nodes = nodes_of_last_hour(case.state, case.now)
    limit = case.settings.budget.nodes_per_hour
    if len(nodes) < limit:
        return None
    text = f"{len(nodes)} nodes were taken out within an hour; budget.nodes_per_hour is {limit}."
    return Objection("wait", "budget_hour", text)


def cluster_has_budget(case: Case) -> Objection | None:
    """Object to many nodes that are out at once."""
    out = case.state.nodes_out
    limit = most_at_once(case.surroundings.nodes, case.settings.budget)
    if len(out) < limit:
        return None
    size = case.surroundings.nodes
    text = (
        f"{len(out)} nodes are out; of {'an unknown number of' if size is None else size} nodes "
        f"{limit} may be at once (budget.concurrent_ratio, budget.concurrent_max)."
    )
    return Objection("wait", "budget_concurrent", text)


def most_at_once(nodes: int | None, budget: BudgetConfig) -> int:
    """Return how many nodes may be out at once: one, where the cluster's size is unknown."""
    share = int((nodes or 0) * budget.concurrent_ratio)
    return min(budget.concurrent_max, max(1, share))


def nodes_of_last_hour(state: State, now: float) -> set[tuple[str, str]]:
    """Return the nodes that were taken out within an hour."""
    return _nodes(_of_last_hour(state, now))


def _of_last_hour(state: State, now: float) -> Iterable[Response]:
    return (
        each
        for each in takewhile(lambda each: now - each.planned_at < _HOUR, state.newest_first)
        if each.status not in _NOT_TAKEN
    )


def _nodes(responses: Iterable[Response]) -> set[tuple[str, str]]:
    return {(each.cluster, each.node) for each in responses}


GUARDS: tuple[Guard, ...] = (
    is_not_paused,
    breaker_is_closed,
    alert_has_stood,
    is_the_only_suspect,
    job_has_budget,
    hour_has_budget,
    cluster_has_budget,
)
