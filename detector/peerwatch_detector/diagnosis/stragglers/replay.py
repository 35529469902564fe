"""Replays a step with given durations: how long it takes when nothing but its operations costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.diagnosis.stragglers.schedule import Event, Schedule

# What an operation takes: seconds, a number or of shape (replicas, steps).
Cost = float | NDArray[np.float64]


def costs(layout: Layout, schedule: Schedule) -> list[NDArray[np.float64]]:
    """Return what each operation takes itself, without waiting for others to begin.

    Returns
    -------
    list
        Seconds of each operation, of shape (replicas, steps). Of a transfer it is the time from
        when the last of its ends began.
    """
    own = [layout.duration[index] for index in range(len(layout))]
    for event in schedule.events:
        if len(event.members) == 1 and not event.replicas:
            continue
        begun = _begun([layout.start[index] for index in event.members], event)
        for index in event.members:
            end = layout.start[index] + layout.duration[index]
            # A little below zero where clocks differ.
            own[index] = np.maximum(end - begun, 0.0)
    return own


def step_seconds(schedule: Schedule, costs: Sequence[Cost]) -> NDArray[np.float64]:
    """Return how long each step takes.

    Parameters
    ----------
    schedule
        What waits for what.
    costs
        Seconds that each operation takes itself.

    Returns
    -------
    ndarray
        Seconds, of shape (steps,), or the shape of what was given without its first axis.
    """
    ends: dict[int, Cost] = {}
    total: Cost = 0.0
    for event, unused in zip(schedule.events, schedule.last_uses, strict=True):
        starts = [_latest([ends[before] for before in part]) for part in event.predecessors]
        if len(event.members) == 1 and not event.replicas:
            begun = starts[0]
        else:
            begun = _begun(starts, event)
        for index in event.members:
            ends[index] = begun + costs[index]
        for index in unused:
            total = np.maximum(total, ends.pop(index))
    whole = np.asarray(total, dtype=np.float64)
    return whole.max(axis=0) if whole.ndim else whole


def _begun(starts: Sequence[Cost], event: Event) -> Cost:
    """Return when the last of those that wait for one another begins."""
    latest = _latest(starts)
    if not event.replicas or not isinstance(latest, np.ndarray):
        return latest
    if event.groups is None:
        return np.asarray(latest.max(axis=0, keepdims=True))
    order = np.argsort(event.groups, kind="stable")
    _, first, place = np.unique(event.groups[order], return_index=True, return_inverse=True)
    result = np.empty_like(latest)
    result[order] = np.maximum.reduceat(latest[order], first, axis=0)[place]
    return result


def _latest(times: Sequence[Cost]) -> Cost:
    if not times:
        return 0.0
    latest = times[0]
    for time in times[1:]:
        latest = np.maximum(latest, time)
    return latest
