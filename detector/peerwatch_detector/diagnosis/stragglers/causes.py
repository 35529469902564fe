"""Why a job is slower than it need be, and whether a machine is at fault."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf

CauseName = Literal[
    "machine", "stage", "sequence_length", "undecided", "unexplained", "no_straggler"
]

# The paper's: a job straggles from S = 1.1 on, a part of it is the cause if it explains half of
# the lost time, and lengths are uneven if forward and backward times correlate by 0.9.
SLOWDOWN = 1.1
SHARE = 0.5
CORRELATION = 0.9


@dataclass(frozen=True, slots=True)
class NamedWorker:
    """A worker that is at fault.

    Parameters
    ----------
    rank, node
        Who; the node is empty where the trace does not have it.
    replica, stage
        Its data-parallel rank and pipeline stage.
    ratio
        What it takes to compute a microbatch, against the same stage of the other replicas.
    """

    rank: int
    node: str
    replica: int
    stage: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of the slowdown.

    Parameters
    ----------
    name
        What kind of cause.
    share
        Share of the lost time that it explains; NaN where none can be given.
    text
        What it means, in a sentence or two.
    """

    name: CauseName
    share: float
    text: str


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the measures mean.

    Parameters
    ----------
    causes
        The greatest share first; never empty.
    workers
        Whom it names: only where machines are the cause.
    """

    causes: tuple[Cause, ...]
    workers: tuple[NamedWorker, ...]


def conclude(layout: Layout, measures: WhatIf) -> Conclusion:
    """Return why a job is slow, and whom it names."""
    if not measures.slowdown >= SLOWDOWN:
        text = f"Less than {SLOWDOWN - 1:.0%} slower than with even operations."
        return Conclusion((Cause("no_straggler", math.nan, text),), ())
    workers = _named(layout, measures)
    if workers:
        return Conclusion((_machine(measures, workers),), workers)
    causes = [*_stage(layout, measures), *_lengths(measures)]
    if not causes:
        causes = [_unexplained(layout, measures)]
    return Conclusion(tuple(sorted(causes, key=lambda cause: -cause.share)), ())


def _named(layout: Layout, measures: WhatIf) -> tuple[NamedWorker, ...]:
    """Return the workers at fault: a minority of every stage that explains the lost time."""
    if measures.slow_workers_share < SHARE:
        return ()
    slowest = sorted(measures.slow_workers.items(), key=lambda item: -item[1])
    return tuple(
        NamedWorker(
            rank := layout.ranks[layout.replicas[replica], stage],
            layout.nodes.get(rank, ""),
            layout.replicas[replica],
            stage,
            ratio,
        )
        for (replica, stage), ratio in slowest
    )


def _machine(measures: WhatIf, workers: tuple[NamedWorker, ...]) -> Cause:
    who = ", ".join(
        f"rank {worker.rank}" + (f" on {worker.node}" if worker.node else "")
        for worker in workers[:4]
    )
    more = f" and {len(workers) - 4} more" if len(workers) > 4 else ""
    return Cause(
        "machine",
        measures.slow_workers_share,
        f"{who}{more}: slower than the same stage of other replicas in most microbatches "
        f"({workers[0].ratio:.2f} times their median).",
    )


def _stage(layout: Layout, measures: WhatIf) -> list[Cause]:
    shares = {stage: measures.stage_shares[stage] for stage in measures.slow_stages}
    stage, share = max(shares.items(), key=lambda item: item[1], default=(0, 0.0))
    if share < SHARE:
        return []
    if len(layout.replicas) < 2:
        text = (
            f"Stage {stage} is slow, and there is no other replica that would tell whether it has "
            "more to do or its machine is slow: check that machine."
        )
        return [Cause("undecided", share, text)]
    text = (
        f"Stage {stage} has more to do than the others in every replica: move layers away from "
        "it. No node is at fault."
    )
    return [Cause("stage", share, text)]


def _lengths(measures: WhatIf) -> list[Cause]:
    if measures.uneven_share < SHARE or not measures.correlation >= CORRELATION:
        return []
    text = (
        "Microbatches take unevenly long, forward as well as backward (correlation "
        f"{measures.correlation:.2f}), as sequences of uneven length do: balance them over "
        "microbatches and replicas. No node is at fault."
    )
    return [Cause("sequence_length", measures.uneven_share, text)]


def _unexplained(layout: Layout, measures: WhatIf) -> Cause:
    if len(layout.replicas) < 2 and len(measures.stage_shares) < 2:
        text = "There is a single worker: nobody to compare it with."
        return Cause("undecided", math.nan, text)
    if measures.worst_share >= SHARE:
        ranks = (layout.ranks[layout.replicas[replica], stage] for replica, stage in measures.worst)
        text = (
            f"Rank {', '.join(map(str, ranks))} explains {measures.worst_share:.0%} of the lost "
            "time, but is not surely slower than its peers in most microbatches: take a longer "
            "trace."
        )
        return Cause("undecided", measures.worst_share, text)
    kind, slowdown = max(measures.by_kind.items(), key=lambda item: item[1])
    text = (
        "Neither few machines nor a stage nor the length of sequences explains half of the lost "
        f"time; most of it is in {kind} (S = {slowdown:.2f}). No node is at fault as far as this "
        "trace says."
    )
    return Cause("unexplained", math.nan, text)
