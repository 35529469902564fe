"""Finds the waiting that has no span: backward passes that end when those of all ranks do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.spans import COLLECTIVE, SEGMENTS

# Where ends are less than half as far apart as starts, something makes the early ones wait. Chosen:
# without a meeting they are as far apart, with one nearly together.
_TOGETHER = 0.5


def backward_meetings(
    columns: Mapping[str, NDArray[Any]], step: NDArray[np.int32]
) -> NDArray[np.int64] | None:
    """Return the backward passes that end together in all ranks, the last of each step.

    DistributedDataParallel exchanges gradients from C++ while the backward pass runs, so no
    collective has a span, and ranks that wait for a slow one do so in ``backward``.

    Parameters
    ----------
    columns
        Spans: ``rank``, ``segment``, ``start`` and ``end``, of shape (spans,).
    step
        The step of each.

    Returns
    -------
    ndarray or None
        Numbers of the spans; None if backward passes hold collectives, or do not end together.
    """
    backward = np.flatnonzero(columns["segment"] == SEGMENTS.index("backward"))
    ranks, rank = np.unique(columns["rank"][backward], return_inverse=True)
    steps, place = np.unique(step[backward], return_inverse=True)
    if len(ranks) < 2 or not len(steps):
        return None
    # Of several in a step the last one communicates; the others accumulate.
    order = np.argsort(columns["start"][backward], kind="stable")
    last = np.full((len(steps), len(ranks)), -1, dtype=np.int64)
    last[place[order], rank[order]] = backward[order]
    complete = last[(last >= 0).all(axis=1)]
    if not len(complete) or _hold_collectives(columns, complete):
        return None
    starts, ends = (np.ptp(columns[name][complete], axis=1) for name in ("start", "end"))
    if np.median(ends) >= _TOGETHER * np.median(starts):
        return None
    return last[last >= 0]


def _hold_collectives(columns: Mapping[str, NDArray[Any]], passes: NDArray[np.int64]) -> bool:
    """Whether collectives begin within most of some backward passes."""
    collective = np.flatnonzero(columns["segment"] == SEGMENTS.index(COLLECTIVE))
    holding = total = 0
    for rank in np.unique(columns["rank"][passes]).tolist():
        begun = np.sort(columns["start"][collective[columns["rank"][collective] == rank]])
        own = passes[columns["rank"][passes] == rank]
        before = np.searchsorted(begun, columns["start"][own])
        after = np.searchsorted(begun, columns["end"][own])
        holding += int((after > before).sum())
        total += len(own)
    return holding > total / 2
