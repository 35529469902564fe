"""A training job of any layout that one fault brings to a stand: what a snapshot of it shows.

A model of its own, apart from the rule it tests: every rank works through its part of one order of
collectives, hosts launch up to ``depth`` ahead of their device, and devices do one after another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Literal

from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position, Snapshot

Fault = Literal["hung", "silent", "dead", "device", "link"]


@dataclass(frozen=True)
class Layout:
    """Sizes of the parallel dimensions; ep ranks of the dp share out the experts."""

    tp: int
    pp: int
    dp: int
    ep: int

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp

    def rank(self, tp: int, pp: int, dp: int) -> int:
        return (pp * self.dp + dp) * self.tp + tp


def random_layout(random: Random, limit: int = 1024) -> Layout:
    """Return a layout of 2 to ``limit`` ranks."""
    while True:
        tp, pp, dp = (2 ** random.randint(0, most) for most in (3, 4, 7))
        ep = 2 ** random.randint(0, 3)
        if 2 <= tp * pp * dp <= limit and dp % ep == 0:
            return Layout(tp, pp, dp, ep)


class Job:
    """The groups of a layout, and the order in which a few steps call them."""

    def __init__(self, layout: Layout, random: Random) -> None:
        self.layout = layout
        self.groups: dict[str, tuple[int, ...]] = {}
        self.order: list[str] = []
        self.microbatches = random.randint(1, 3)
        for _ in range(2):
            self._step()

    def _call(self, name: str, ranks: list[int]) -> None:
        if len(ranks) > 1:
            self.groups.setdefault(name, tuple(ranks))
            self.order.append(name)

    def _step(self) -> None:
        layout = self.layout
        stages = list(range(layout.pp))
        for _ in range(self.microbatches):
            for stage in stages:
                self._stage(stage, stage + 1)
            for stage in reversed(stages):
                self._stage(stage, stage - 1)
        for stage in stages:
            for tp in range(layout.tp):
                ranks = [layout.rank(tp, stage, dp) for dp in range(layout.dp)]
                self._call(f"dp-{stage}-{tp}", ranks)
        self._call("world", list(range(layout.ranks)))

    def _stage(self, stage: int, following: int) -> None:
        layout = self.layout
        for dp in range(layout.dp):
            self._call(f"tp-{stage}-{dp}", [layout.rank(tp, stage, dp) for tp in range(layout.tp)])
        for tp in range(layout.tp):
            for first in range(0, layout.dp, layout.ep):
                experts = range(first, first + layout.ep)
                ranks = [layout.rank(tp, stage, dp) for dp in experts]
                self._call(f"ep-{stage}-{tp}-{first}", ranks)
        if 0 <= following < layout.pp:
            low = min(stage, following)
            for dp in range(layout.dp):
                for tp in range(layout.tp):
                    pair = [layout.rank(tp, low, dp), layout.rank(tp, low + 1, dp)]
                    self._call(f"pp-{low}-{tp}-{dp}", pair)


def standing(
    job: Job, fault: Fault, culprit: int, nth: int, depth: int, *, starts: bool
) -> tuple[Snapshot, str]:
    """Run until nothing moves; the fault comes with the ``nth`` collective of the culprit.

    Returns
    -------
    tuple
        What is seen, and the group of that collective.
    """
    launched: dict[tuple[str, int], int] = defaultdict(int)
    started: dict[tuple[str, int], int] = defaultdict(int)
    completed: dict[tuple[str, int], int] = defaultdict(int)
    pending = [0] * job.layout.ranks
    calls, struck = 0, ""
    for name in job.order:
        ranks = job.groups[name]
        here = False
        if culprit in ranks and not struck:
            here = calls == nth
            struck, calls = name if here else "", calls + 1
        stopped = bool(struck) and fault in ("hung", "silent", "dead")
        active = [
            rank for rank in ranks if pending[rank] < depth and not (stopped and rank == culprit)
        ]
        for rank in active:
            launched[name, rank] += 1
        if here and fault == "device":
            pending[culprit] += 1
        begun = [rank for rank in active if not pending[rank]]
        for rank in begun:
            started[name, rank] += 1
        if len(begun) == len(ranks) and not (here and fault == "link"):
            for rank in ranks:
                completed[name, rank] += 1
        else:
            for rank in active:
                pending[rank] += 1
    return _seen(job, fault, culprit, launched, completed, started if starts else None), struck


def _seen(job, fault, culprit, launched, completed, started) -> Snapshot:
    unheard = {culprit} if fault in ("silent", "dead") else set()
    positions = {
        name: {
            rank: Position(
                launched[name, rank],
                completed[name, rank],
                None if started is None else started[name, rank],
            )
            for rank in ranks
            if rank not in unheard
        }
        for name, ranks in job.groups.items()
    }
    groups = {name: Group(name, frozenset(ranks)) for name, ranks in job.groups.items()}
    return Snapshot(
        0.0,
        groups,
        positions,
        frozenset(unheard if fault == "silent" else ()),
        frozenset(unheard if fault == "dead" else ()),
    )


def calls_of(job: Job, rank: int) -> int:
    """Return how many collectives a rank takes part in."""
    return sum(rank in job.groups[name] for name in job.order)


@dataclass(frozen=True)
class Trial:
    """One job that stands, and the truth about it."""

    layout: Layout
    fault: Fault
    culprit: int
    group: str
    snapshot: Snapshot


def trial(seed: int, faults: tuple[Fault, ...], limit: int = 1024) -> Trial:
    """Return the job of a seed."""
    random = Random(seed)
    layout = random_layout(random, limit)
    job = Job(layout, random)
    culprit = random.randrange(layout.ranks)
    fault = random.choice(faults)
    # Without a count of starts, nothing says that it is the device that does not get on.
    starts = fault in ("device", "link") or random.random() < 0.5
    nth = random.randrange(calls_of(job, culprit))
    depth = random.choice((1, 1, 3, 20))
    state, group = standing(job, fault, culprit, nth, depth, starts=starts)
    return Trial(layout, fault, culprit, group, state)
