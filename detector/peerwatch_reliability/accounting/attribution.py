"""Why an attempt ended: what was observed on its nodes from 10 minutes before to 5 minutes after.

The windows are those of Kokolis et al. (arXiv 2410.21680). What speaks most directly is the root: a
check of high severity, a hardware XID, a diagnosis, a finding, the scheduler's own word, a log. The
others are kept as what occurred together with it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from peerwatch_reliability.accounting.causes import (
    NODE_FAIL,
    UNKNOWN,
    USER,
    Cause,
    cause_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_reliability.accounting.attempts import Attempt
    from peerwatch_reliability.records import Evidence, OutOfService, State

# A check that fires so long before an attempt's end, or after it, counts as its cause (Meta).
BEFORE_SECONDS = 600.0
AFTER_SECONDS = 300.0
# Chosen: the scheduler ends a job and takes its lost node out of service at once.
_SAME_SECONDS = 60.0

Origin = Literal["infrastructure", "user", "scheduler", "none", "unknown"]


class Attribution(NamedTuple):
    """Why an attempt ended.

    Parameters
    ----------
    origin
        Whose failure it was; ``scheduler``: preempted, cancelled or requeued by order; ``none``: it
        succeeded; ``unknown``: nothing speaks for any.
    cause
        The root.
    node
        Where; empty: not known.
    proximal
        What was only seen of it, such as an NCCL time-out; None: nothing.
    by
        The observation that the root rests on; None: the scheduler's word, or nothing.
    together
        Names of other causes that were observed at the same time.
    """

    origin: Origin
    cause: Cause
    node: str = ""
    proximal: Cause | None = None
    by: Evidence | None = None
    together: tuple[str, ...] = ()

    @property
    def is_failure_of_infrastructure(self) -> bool:
        """Whether it counts in MTTF, ETTR and goodput."""
        return self.origin == "infrastructure"


class EvidenceByNode:
    """Evidence, found again by node and time.

    Parameters
    ----------
    evidence
        All of it.
    """

    def __init__(self, evidence: Iterable[Evidence]) -> None:
        self._of_node: defaultdict[str, list[Evidence]] = defaultdict(list)
        self._of_job: defaultdict[str, list[Evidence]] = defaultdict(list)
        for each in evidence:
            if each.node:
                self._of_node[each.node].append(each)
            else:
                self._of_job[each.job_id].append(each)

    def around(self, attempt: Attempt) -> list[Evidence]:
        """Return what stood on an attempt's nodes, or of its job, around its end."""
        first, last = attempt.end - BEFORE_SECONDS, attempt.end + AFTER_SECONDS
        job_id = attempt.row.job_id
        known = [*self._of_job.get(job_id, ())]
        for node in attempt.row.nodes:
            known += self._of_node.get(node, ())
        return [
            each
            for each in known
            if each.start <= last and each.end >= first and each.job_id in {"", job_id}
        ]


# Kinds of evidence that name the root, the most direct first.
_ORDER: tuple[tuple[str, str], ...] = (
    ("check", "high"),
    ("xid", "high"),
    ("diagnosis", "high"),
    ("finding", "high"),
    ("diagnosis", "low"),
    ("log", "high"),
)


_USER_ONLY = frozenset({"user"})
# What the scheduler's own word says, where nothing else speaks of the infrastructure.
_BY_STATE: dict[State, tuple[Origin, Cause]] = {
    "node_fail": ("infrastructure", NODE_FAIL),
    "requeued": ("scheduler", UNKNOWN),
    "out_of_memory": ("user", USER),
}


def attribution_of(attempt: Attempt, around: Sequence[Evidence]) -> Attribution:
    """Return why an attempt ended.

    Parameters
    ----------
    attempt
        It.
    around
        What ``EvidenceByNode.around`` returns for it.
    """
    state = attempt.row.state
    if attempt.is_open or state == "completed":
        return Attribution("none", UNKNOWN)
    if state in {"preempted", "cancelled", "timeout"}:
        # A preempted job whose node fails in the same minutes was preempted all the same.
        return Attribution("scheduler", UNKNOWN)
    proximal = next((c for each in around if (c := cause_of(each)).is_proximal), None)
    root = _root(around)
    together = _together(around, root)
    if root is not None and cause_of(root).domains != _USER_ONLY:
        return Attribution("infrastructure", cause_of(root), root.node, proximal, root, together)
    if state == "failed" and root is not None:
        return Attribution("user", cause_of(root), root.node, proximal, root, together)
    # Where only an NCCL time-out was seen, somebody waited in vain; for whom, nothing says.
    origin, cause = _BY_STATE.get(state, ("unknown", UNKNOWN))
    return Attribution(origin, cause, "", proximal, None, together)


def with_node(
    attribution: Attribution, attempt: Attempt, out: Mapping[str, Sequence[OutOfService]]
) -> Attribution:
    """Return an attribution with the node that the scheduler lost, where nobody else names one.

    Parameters
    ----------
    attribution, attempt
        Why an attempt ended, and it.
    out
        Times out of service by node.
    """
    if attempt.row.state != "node_fail" or attribution.node:
        return attribution
    lost = {
        node
        for node in attempt.row.nodes
        for each in out.get(node, ())
        if abs(each.start - attempt.end) <= _SAME_SECONDS
    }
    # Of two that went at once, either may be why.
    return attribution._replace(node=lost.pop()) if len(lost) == 1 else attribution


def _root(around: Iterable[Evidence]) -> Evidence | None:
    ranked = []
    for each in around:
        rank = (each.kind, each.severity)
        cause = cause_of(each)
        if cause.is_proximal or rank not in _ORDER:
            continue
        # Of equals, one that names its part, and of those the first.
        ranked.append((_ORDER.index(rank), cause is UNKNOWN, each.start, each))
    return min(ranked, key=lambda entry: entry[:3])[3] if ranked else None


def _together(around: Iterable[Evidence], root: Evidence | None) -> tuple[str, ...]:
    names = {cause_of(each).name for each in around if not cause_of(each).is_proximal}
    return tuple(sorted(names - {"unknown" if root is None else cause_of(root).name}))
