"""How evenly work is spread: over the workers, and over microbatches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.operations import BACKWARD, FORWARD

# Number of the replica, and stage.
Worker = tuple[int, int]

# What is usual between nodes: up to 14 % in a single operation (PRISM, 2510.15596), far less in the
# median over a trace. The paper calls a job slow from 10 % on.
SLOW_RATIO = 1.1
# Half of that is slower by more than chance within a microbatch.
_SLOWER = 1.05
# A stage with more to do is slow in every replica; a few may have other faults. Chosen: three of
# four, so that one replica of a small job may have one.
_EVERY_REPLICA = 0.75
# Standard deviations by which a worker must be slower in most microbatches: by chance 1 in 30,000,
# so that none of a thousand workers is.
_SURE = 4.0


def slow_workers(layout: Layout, own: Sequence[NDArray[np.float64]]) -> dict[Worker, float]:
    """Return workers that compute slower than the same stage in other replicas.

    Each microbatch is compared with the same microbatch of the other replicas, so that a stage with
    more to do makes no worker slow. Nor do sequences of uneven length: a worker must be slower in
    most microbatches, and in more than chance explains.

    Parameters
    ----------
    layout
        The job.
    own
        Seconds of each operation, of shape (replicas, steps).

    Returns
    -------
    dict
        Median ratio to the median of the others, of those of at least ``SLOW_RATIO``.
    """
    if len(layout.replicas) < 2:
        return {}
    found: dict[Worker, float] = {}
    for stage in layout.all_stages:
        work = _microbatches(layout, own, stage)
        if not work:
            continue
        ratios = np.concatenate(
            [seconds / np.maximum(_median_of_others(seconds), 1e-9) for seconds in work], axis=1
        )
        medians = np.median(ratios, axis=1)
        most = _lower_bound((ratios >= _SLOWER).mean(axis=1), ratios.shape[1]) > 0.5
        for replica in np.flatnonzero((medians >= SLOW_RATIO) & most).tolist():
            found[replica, stage] = float(medians[replica])
    return found


def slow_stages(layout: Layout, own: Sequence[NDArray[np.float64]]) -> tuple[int, ...]:
    """Return the stages that compute longer than the others do, in nearly every replica."""
    if len(layout.all_stages) < 2:
        return ()
    seconds = np.stack(
        [
            np.sum([cost.mean(axis=1) for cost in _microbatches(layout, own, stage)], axis=0)
            for stage in layout.all_stages
        ]
    )
    slower = (seconds >= _SLOWER * _median_of_others(seconds)).mean(axis=1)
    return tuple(
        stage
        for stage, share in zip(layout.all_stages, slower, strict=True)
        if share >= _EVERY_REPLICA
    )


def _microbatches(
    layout: Layout, own: Sequence[NDArray[np.float64]], stage: int
) -> list[NDArray[np.float64]]:
    """Return what each microbatch of a stage takes, of shape (replicas, steps)."""
    if layout.chained:
        # Pieces between collectives; how many microbatches they are is not known.
        pieces = [
            cost for cost, kind in zip(own, layout.kinds, strict=True) if kind.scope == "rank"
        ]
        return [np.sum(pieces, axis=0)] if pieces else []
    forward, backward = (_in_order(layout, stage, kind) for kind in (FORWARD, BACKWARD))
    if len(forward) != len(backward):
        return [own[index] for index in forward or backward]
    return [own[first] + own[second] for first, second in zip(forward, backward, strict=True)]


def _lower_bound(share: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the lower bound of a share (Wilson's)."""
    square = _SURE**2
    spread = np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return np.asarray((share + square / (2 * count) - _SURE * spread) / (1 + square / count))


def correlation(layout: Layout) -> float:
    """Return how far the forward and the backward time of a microbatch go together.

    Both grow with the length of its sequences, so that where lengths differ it is near 1. What
    makes a worker slow for good does not count: times are taken against the worker's own mean.

    Returns
    -------
    float
        Pearson's coefficient over all microbatches; NaN if their times do not vary.
    """
    forward: list[NDArray[np.float64]] = []
    backward: list[NDArray[np.float64]] = []
    for stage in layout.all_stages:
        first, second = (
            [layout.duration[index] for index in _in_order(layout, stage, kind)]
            for kind in (FORWARD, BACKWARD)
        )
        if not first or not second:
            continue
        if layout.chained:
            # Pieces between collectives; how many microbatches they are is not known.
            first, second = [np.sum(first, axis=0)], [np.sum(second, axis=0)]
        if len(first) != len(second):
            continue
        for times, all_times in ((first, forward), (second, backward)):
            block = np.stack(times)
            all_times.append((block - block.mean(axis=(0, 2), keepdims=True)).reshape(-1))
    if not forward:
        return math.nan
    x, y = np.concatenate(forward), np.concatenate(backward)
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 0 else math.nan


def _in_order(layout: Layout, stage: int, kind: object) -> list[int]:
    """Return computing in an order that is that of the microbatches of each part of the model."""
    chosen = [
        index
        for index, other in enumerate(layout.kinds)
        if other is kind and layout.stages[index] == stage
    ]
    return sorted(chosen, key=lambda index: (layout.chunks[index], layout.sequences[index]))


def _median_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each value the median of the others along the first axis."""
    count = len(values)
    order = np.argsort(values, axis=0, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count)[:, None], axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    low, high = (count - 2) // 2, (count - 1) // 2
    # Those behind a value move up by one once it is taken out.
    columns = np.arange(values.shape[1])[None, :]
    both = ranked[low + (place <= low), columns] + ranked[high + (place <= high), columns]
    return np.asarray(both / 2)
