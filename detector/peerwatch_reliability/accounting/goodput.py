"""Goodput that failures cost: of the jobs that fail, and of those that they push aside.

Counted in GPU-seconds as Kokolis et al. (arXiv 2410.21680) do: of every attempt that the
infrastructure failed, its run time up to half a checkpoint interval (30 minutes) times its GPUs;
second order, the same of every attempt that was preempted when such a job started again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_reliability.accounting.attempts import Attempt, Chain
    from peerwatch_reliability.accounting.attribution import Attribution

Key = tuple[str, int]

# Of the paper: it assumes that checkpoints are an hour apart.
HALF_INTERVAL_SECONDS = 1800.0
# A job that is pushed aside is given this long to end before the other starts. Chosen: longer than
# Slurm's KillWait of 30 s and a last checkpoint.
_GRACE_SECONDS = 180.0
# Preemptions by preempted jobs. Chosen: a longer row of them is one that chance has linked.
_LONGEST_CASCADE = 20


class Loss(NamedTuple):
    """What one attempt's end cost.

    Parameters
    ----------
    key
        The attempt.
    cause
        Of the failure, or of the one at the head of the preemptions.
    gpu_seconds
        Lost.
    order
        1: it failed itself; 2: it was preempted by one that had.
    root
        The attempt that failed.
    """

    key: Key
    cause: str
    gpu_seconds: float
    order: int
    root: Key


def losses_of(
    chains: Sequence[Chain],
    why: Mapping[Key, Attribution],
    most_seconds: float = HALF_INTERVAL_SECONDS,
) -> list[Loss]:
    """Return what every failure of the infrastructure cost, and what followed from it.

    Parameters
    ----------
    chains
        All attempts: whom a restart has pushed aside is read from the times on common nodes.
    why
        Why each attempt ended.
    most_seconds
        The most of an attempt's run that counts as lost.
    """
    found = []
    before: dict[Key, Attempt] = {}
    for chain in chains:
        for number, attempt in enumerate(chain.attempts):
            if number:
                before[attempt.key] = chain.attempts[number - 1]
            attribution = why.get(attempt.key)
            if attribution is not None and attribution.is_failure_of_infrastructure:
                cost = min(attempt.run_seconds, most_seconds) * attempt.row.gpus
                found.append(Loss(attempt.key, attribution.cause.name, cost, 1, attempt.key))
    cause_of = {loss.key: loss.cause for loss in found}
    pushed_by = preemptors(chains)
    for key, (attempt, by) in pushed_by.items():
        root = _root(by, before, cause_of, pushed_by)
        if root is not None:
            cost = min(attempt.run_seconds, most_seconds) * attempt.row.gpus
            found.append(Loss(key, cause_of[root], cost, 2, root))
    return found


def preemptors(chains: Sequence[Chain]) -> dict[Key, tuple[Attempt, Attempt]]:
    """Return the preempted attempts, each with the one that started in its place.

    No scheduler writes down for whom it preempted: it is the first attempt that starts on one of
    the nodes within the grace after the end.
    """
    starts: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    attempts = [each for chain in chains for each in chain.attempts if each.start is not None]
    preempted = [each for each in attempts if each.row.state == "preempted"]
    if not preempted:
        return {}
    nodes = {node for each in preempted for node in each.row.nodes}
    for number, each in enumerate(attempts):
        for node in each.row.nodes:
            if node in nodes:
                starts[node].append((each.start or 0.0, number))
    for of_node in starts.values():
        of_node.sort()
    found = {}
    for each in preempted:
        first: tuple[float, int] | None = None
        for node in each.row.nodes:
            of_node = starts[node]
            for index in range(bisect_left(of_node, (each.end - 1.0, -1)), len(of_node)):
                start, number = of_node[index]
                if start > each.end + _GRACE_SECONDS:
                    break
                if attempts[number].row.job_id != each.row.job_id:
                    first = min(first, of_node[index]) if first else of_node[index]
                    break
        if first is not None:
            found[each.key] = (each, attempts[first[1]])
    return found


def _root(
    by: Attempt,
    before: Mapping[Key, Attempt],
    cause_of: Mapping[Key, str],
    pushed_by: Mapping[Key, tuple[Attempt, Attempt]],
) -> Key | None:
    """Return the failed attempt whose restart is at the head of preemptions; None: none is."""
    for _ in range(_LONGEST_CASCADE):
        previous = before.get(by.key)
        if previous is None:
            return None
        if previous.key in cause_of:
            return previous.key
        if previous.key not in pushed_by:
            return None
        by = pushed_by[previous.key][1]
    return None
