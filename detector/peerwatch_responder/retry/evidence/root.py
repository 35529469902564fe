"""Finds the line that a job failed of among those that follow from it.

The earliest error that neither follows from another nor was survived is the root. Three things set
it right: a symptom that any rank shows when another one fails is a root only where nothing else
is, or where it came long before; a fault of hardware is often told by the kernel a little after the
program has noticed it; and what a scheduler does to a job that hangs is no cause of the hang.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from peerwatch_responder.retry.evidence.occurrence import Occurrence

# Clocks differ, and processes write late. Chosen: longer than these, and a tenth of the time-out
# of PyTorch's NCCL collectives (10 minutes), after which other ranks complain.
_TOGETHER_SECONDS = 60.0
# Faults of hardware first, the program's own last: what a rank says after a GPU fell off the bus.
_FIRST = {"H": 0, "N": 1}
# What a scheduler writes when it ends a job.
ENDINGS = frozenset({"slurm_time_limit", "slurm_cancelled", "slurm_requeue", "slurm_not_ending"})


def find_root(occurrences: Sequence[Occurrence], weak: Collection[str]) -> Occurrence | None:
    """Return the root; None: nothing that could be one was found.

    Parameters
    ----------
    occurrences
        All errors of the attempt.
    weak
        Signatures that say little, such as any exception.
    """
    able = [each for each in occurrences if not each.cascade and not each.survived]
    symptoms = [each for each in able if each.event_class == "D"]
    faults = [each for each in able if each.event_class != "D"]
    # What says little still says more than a symptom.
    first = _earliest([each for each in faults if each.signature not in weak]) or _earliest(faults)
    other = _earliest(symptoms)
    if first is None:
        return other
    if other is not None and _came_long_before(other, first):
        return other
    return first


def first_cascade(occurrences: Sequence[Occurrence]) -> Occurrence | None:
    """Return the first of the errors that follow from one that no log has; None: none."""
    return _earliest([each for each in occurrences if each.cascade and not each.survived])


def cascades(occurrences: Sequence[Occurrence], root: Occurrence | None) -> dict[str, int]:
    """Return how many errors followed from the root, by signature, the most frequent first."""
    counted = Counter(
        each.signature
        for each in occurrences
        if each is not root and not each.survived and (each.cascade or each.event_class == "D")
    )
    return dict(counted.most_common())


def complained_about(occurrences: Sequence[Occurrence]) -> str:
    """Return the peer that most ranks lost; empty: they do not agree on one."""
    voices: dict[str, set[object]] = {}
    for each in occurrences:
        if each.peer and not each.survived:
            who = each.rank if each.rank is not None else (each.log, each.node)
            voices.setdefault(each.peer, set()).add(who)
    ranked = sorted(voices.items(), key=lambda item: -len(item[1]))
    if not ranked or (len(ranked) > 1 and len(ranked[1][1]) * 2 > len(ranked[0][1])):
        return ""
    return ranked[0][0]


def _earliest(candidates: Sequence[Occurrence]) -> Occurrence | None:
    if not candidates:
        return None
    if all(each.time is not None for each in candidates):
        begin = min(each.time for each in candidates if each.time is not None)
        near = [
            each
            for each in candidates
            if each.time is not None and each.time - begin <= _TOGETHER_SECONDS
        ]
        return min(near, key=lambda each: (_rank_of(each), each.time, each.log, each.offset))
    # Without times nothing is known of the order between logs.
    return min(candidates, key=lambda each: (_rank_of(each), each.log, each.offset))


def _rank_of(each: Occurrence) -> int:
    return _FIRST.get(each.event_class, 2)


def _came_long_before(other: Occurrence, first: Occurrence) -> bool:
    if other.time is not None and first.time is not None:
        return first.time - other.time > _TOGETHER_SECONDS
    return first.signature in ENDINGS and (other.log != first.log or other.offset < first.offset)
