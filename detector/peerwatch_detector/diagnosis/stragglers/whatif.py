"""What a job would gain if some of its operations took what they ideally take.

The measures are those of "Understanding Stragglers in Large Model Training Using What-if Analysis"
(ByteDance): a step is replayed with what its operations took, once with all of them at their ideal,
and with parts of it at their ideal or as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.operations import BACKWARD, FORWARD
from peerwatch_detector.diagnosis.stragglers.replay import Cost, costs, step_seconds
from peerwatch_detector.diagnosis.stragglers.schedule import Schedule
from peerwatch_detector.diagnosis.stragglers.work import (
    Worker,
    correlation,
    slow_stages,
    slow_workers,
)

# M_w asks what these explain; the paper's.
WORST_SHARE = 0.03
# Of less than this part of a step there are no shares: they would be rounding. Chosen: a tenth of
# the 1.1 from which on the paper calls a job slow.
_LEAST_LOST = 0.01


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The measures of a job.

    Parameters
    ----------
    recorded_seconds
        Mean step as recorded, with what no operation accounts for.
    replayed_seconds, ideal_seconds
        Mean step of the replay, with the durations as they were and with all at their ideal.
    by_kind, by_replica, by_stage
        Slowdown if only these were as they were, and everything else ideal.
    by_worker
        By (replica, stage): the smaller of its replica's and its stage's slowdown.
    worst
        The workers of the highest slowdowns, ``WORST_SHARE`` of all.
    worst_share
        M_w: share of the lost time that ends when these are ideal. Near 1: single machines.
    last_stage_share
        M_s: the same for the last stage; NaN if there is one.
    stage_shares
        The same by stage.
    slow_stages
        Stages that compute longer than the others in nearly every replica.
    uneven_share
        The same when every microbatch computes as long as its stage does on average.
    slow_workers
        Workers that compute slower than the same stage in other replicas, with the ratio.
    slow_workers_share
        The same for these.
    correlation
        Of the forward and backward times of microbatches; near 1 where sequences differ in length.
    """

    recorded_seconds: float
    replayed_seconds: float
    ideal_seconds: float
    by_kind: dict[str, float]
    by_replica: dict[int, float]
    by_stage: dict[int, float]
    by_worker: dict[Worker, float]
    worst: tuple[Worker, ...]
    worst_share: float
    last_stage_share: float
    stage_shares: dict[int, float]
    slow_stages: tuple[int, ...]
    uneven_share: float
    slow_workers: dict[Worker, float]
    slow_workers_share: float
    correlation: float

    @property
    def slowdown(self) -> float:
        """S: the mean step against the ideal."""
        return self.replayed_seconds / self.ideal_seconds if self.ideal_seconds else 1.0


class Replayer:
    """Replays a job with parts of it at their ideal.

    Parameters
    ----------
    layout, schedule
        The job.
    advance
        Called after each replay.
    """

    def __init__(self, layout: Layout, schedule: Schedule, advance: Callable[[], None]) -> None:
        self._layout = layout
        self._schedule = schedule
        self._advance = advance
        self.own = costs(layout, schedule)
        self.ideal = _ideal(layout, self.own)
        self.seconds = self.mean(self.own)
        self.ideal_seconds = self.mean(self.ideal)

    def mean(self, costs: Sequence[Cost]) -> float:
        """Return the mean step with given costs, in seconds."""
        mean = float(np.mean(step_seconds(self._schedule, costs)))
        self._advance()
        return mean

    def slowdown(self, operations: Sequence[bool]) -> float:
        """Return the slowdown if only some operations are as they were."""
        return self._ratio(
            self.mean(
                [
                    own if kept else ideal
                    for own, ideal, kept in zip(self.own, self.ideal, operations, strict=True)
                ]
            )
        )

    def share(self, costs: Sequence[Cost]) -> float:
        """Return the share of the lost time that ends with given costs."""
        lost = self.seconds - self.ideal_seconds
        gained = self.seconds - self.mean(costs)
        return gained / lost if lost > _LEAST_LOST * self.ideal_seconds else 0.0

    def share_of_operations(self, operations: Sequence[bool]) -> float:
        """Return the share of the lost time that ends when some operations are ideal."""
        return self.share(
            [
                ideal if chosen else own
                for own, ideal, chosen in zip(self.own, self.ideal, operations, strict=True)
            ]
        )

    def share_of_workers(self, workers: Sequence[Worker]) -> float:
        """Return the share of the lost time that ends when some workers are ideal."""
        changed: list[Cost] = list(self.own)
        for index, stage in enumerate(self._layout.stages):
            chosen = [(replica, stage) in workers for replica in range(len(self._layout.replicas))]
            if any(chosen):
                rows = np.array(chosen)[:, None]
                changed[index] = np.where(rows, self.ideal[index], self.own[index])
        return self.share(changed)

    def replicas(self) -> Iterator[float]:
        """Yield for each replica the slowdown if only it is as it was."""
        count = len(self._layout.replicas)
        if self._schedule.has_groups:
            for replica in range(count):
                chosen = (np.arange(count) == replica)[:, None]
                yield self._ratio(
                    self.mean(
                        [
                            np.where(chosen, own, ideal)
                            for own, ideal in zip(self.own, self.ideal, strict=True)
                        ]
                    )
                )
            return
        # The ideal replicas are all alike: one stands for them beside each that is as it was, so
        # that all replicas cost two replays and not one each.
        shape = (min(count, 2), self.own[0].size)
        together = []
        for own, ideal in zip(self.own, self.ideal, strict=True):
            cost = np.full(shape, ideal)
            cost[0] = own.reshape(-1)
            together.append(cost)
        steps = step_seconds(self._schedule, together).reshape(self.own[0].shape)
        self._advance()
        yield from (self._ratio(float(mean)) for mean in steps.mean(axis=1))

    def _ratio(self, seconds: float) -> float:
        return seconds / self.ideal_seconds if self.ideal_seconds else 1.0


def replays(layout: Layout, schedule: Schedule) -> int:
    """Return how many replays ``analyse`` makes."""
    stages = len(layout.all_stages)
    replicas = len(layout.replicas) if schedule.has_groups else 1
    return 2 + len(set(map(str, layout.kinds))) + replicas + 2 * stages + 3


def analyse(
    layout: Layout, schedule: Schedule, advance: Callable[[], None] = lambda: None
) -> WhatIf:
    """Return the measures of a job.

    Parameters
    ----------
    layout, schedule
        The job.
    advance
        Called after each of the ``replays``.
    """
    replayer = Replayer(layout, schedule, advance)
    kinds = dict.fromkeys(map(str, layout.kinds))
    by_kind = {
        name: replayer.slowdown([str(kind) == name for kind in layout.kinds]) for name in kinds
    }
    by_replica = dict(enumerate(replayer.replicas()))
    stages = layout.all_stages
    by_stage = {
        stage: replayer.slowdown([other == stage for other in layout.stages]) for stage in stages
    }
    by_worker = {
        (replica, stage): min(by_replica[replica], by_stage[stage])
        for replica in by_replica
        for stage in by_stage
    }
    worst = _worst(layout, by_worker)
    shares = {
        stage: replayer.share_of_operations([other == stage for other in layout.stages])
        for stage in stages
    }
    slow = slow_workers(layout, replayer.own)
    return WhatIf(
        float(np.mean((layout.start + layout.duration).max(axis=(0, 1)))),
        replayer.seconds,
        replayer.ideal_seconds,
        by_kind,
        by_replica,
        by_stage,
        by_worker,
        worst,
        replayer.share_of_workers(worst),
        shares[stages[-1]] if len(stages) > 1 else math.nan,
        shares,
        slow_stages(layout, replayer.own),
        replayer.share(_even(layout, replayer.own)),
        slow,
        replayer.share_of_workers(list(slow)),
        correlation(layout),
    )


def _ideal(layout: Layout, own: Sequence[NDArray[np.float64]]) -> list[float]:
    """Return what each operation ideally takes: the same for all of a type.

    Spans are pieces of computing between collectives of any size: each piece has its own ideal.
    """
    names = range(len(layout)) if layout.chained else [kind.name for kind in layout.kinds]
    ideal = {}
    for name in set(names):
        taken = np.stack([cost for cost, other in zip(own, names, strict=True) if other == name])
        communicates = layout.kinds[list(names).index(name)].communicates
        ideal[name] = float(np.median(taken) if communicates else np.mean(taken))
    return [ideal[name] for name in names]


def _even(layout: Layout, own: Sequence[NDArray[np.float64]]) -> list[Cost]:
    """Return costs in which every microbatch computes as long as its stage does on average."""
    changed: list[Cost] = list(own)
    for stage in layout.all_stages:
        for kind in (FORWARD, BACKWARD):
            chosen = layout.of(stage, kind)
            for index in chosen:
                alike = [index] if layout.chained else chosen
                changed[index] = float(np.mean([own[other].mean() for other in alike]))
    return changed


def _worst(layout: Layout, by_worker: dict[Worker, float]) -> tuple[Worker, ...]:
    """Return the workers of the highest slowdowns; of equal ones the lowest ranks."""
    order = sorted(
        by_worker,
        key=lambda worker: (
            -by_worker[worker],
            layout.ranks[layout.replicas[worker[0]], worker[1]],
        ),
    )
    return tuple(order[: math.ceil(WORST_SHARE * len(order))])
