"""Jobs that are started again and again without coming any further."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.records import CONTINUED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_reliability.accounting.attempts import Attempt, Chain
    from peerwatch_reliability.accounting.goodput import Key, Loss
    from peerwatch_reliability.accounting.time_use import TimeUse

_FAILED = CONTINUED | {"failed", "out_of_memory"}
# Chosen: two failures in a row happen to healthy jobs.
_FEWEST = 3


class CrashLoop(NamedTuple):
    """A row of attempts none of which saved any progress.

    Parameters
    ----------
    job_id, name, user
        Of its last attempt.
    attempts
        How many there were.
    gpus
        Of the job.
    gpu_seconds
        They ran for.
    preempted
        Attempts of others that they pushed aside.
    nodes
        That all of them had in common.
    is_open
        Whether it goes on.
    """

    job_id: str
    name: str
    user: str
    attempts: int
    gpus: int
    gpu_seconds: float
    preempted: int
    nodes: tuple[str, ...]
    is_open: bool


def crash_loops(
    chains: Iterable[Chain], uses: Mapping[Key, TimeUse], losses: Sequence[Loss]
) -> list[CrashLoop]:
    """Return all crash loops, the dearest first.

    An attempt belongs to one if it failed before it could have saved a checkpoint, by the expected
    restart time and checkpoint interval.
    """
    pushed: dict[Key, int] = {}
    for loss in losses:
        if loss.order > 1:
            pushed[loss.root] = pushed.get(loss.root, 0) + 1
    found = []
    for chain in chains:
        row: list[Attempt] = []
        for attempt in chain.attempts:
            if attempt.is_open:
                continue
            if attempt.row.state in _FAILED and _saved_nothing(attempt, uses.get(attempt.key)):
                row.append(attempt)
                continue
            found += _loop(chain, row, pushed, is_open=False)
            row = []
        found += _loop(chain, row, pushed, is_open=chain.last.is_open)
    return sorted(found, key=lambda loop: -loop.gpu_seconds)


def _saved_nothing(attempt: Attempt, use: TimeUse | None) -> bool:
    if use is None or attempt.row.state == "preempted":
        return False
    return attempt.run_seconds < use.restart.expected + use.interval.span.expected


def _loop(
    chain: Chain, row: Sequence[Attempt], pushed: Mapping[Key, int], *, is_open: bool
) -> list[CrashLoop]:
    if len(row) < _FEWEST:
        return []
    last = row[-1].row
    common = set(last.nodes).intersection(*(each.row.nodes for each in row))
    return [
        CrashLoop(
            last.job_id,
            last.name,
            last.user,
            len(row),
            chain.gpus,
            sum(each.run_seconds * each.row.gpus for each in row),
            sum(pushed.get(each.key, 0) for each in row),
            tuple(sorted(common)),
            is_open,
        )
    ]
