"""The series of ranks' processes: values, labels and states by rank and node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from peerwatch_detector.diagnosis.by_rank import number_of
from peerwatch_detector.diagnosis.processes.halts import Place
from peerwatch_detector.frame import Series

LIVE = frozenset({"running", "sleeping", "disk_sleep"})


def place_of(series: Series) -> Place | None:
    """Return whom a series is about; None if its rank is no number."""
    rank = number_of(series.labels.get("rank", ""))
    return None if rank is None else Place(rank, series.labels.get("node", ""))


def by_place(found: Sequence[Series], label: str) -> dict[Place, str]:
    """Return the value of a label by rank and node."""
    pairs = ((place_of(series), series.labels.get(label, "")) for series in found)
    return {place: value for place, value in pairs if place is not None}


def labels_of(found: Sequence[Series]) -> dict[Place, Mapping[str, str]]:
    """Return all labels by rank and node."""
    pairs = ((place_of(series), series.labels) for series in found)
    return {place: labels for place, labels in pairs if place is not None}


def values_of(found: Sequence[Series]) -> dict[Place, float]:
    """Return the values by rank and node; what is no finite number is left out."""
    pairs = ((place_of(series), float(series.values[-1])) for series in found)
    return {place: v for place, v in pairs if place is not None and math.isfinite(v)}


def states_of(found: Sequence[Series]) -> dict[Place, str]:
    """Return the state of each rank; of two that are reported, the one that runs."""
    states: dict[Place, str] = {}
    for series in found:
        place, state = place_of(series), series.labels.get("state", "")
        if place is not None and states.get(place) not in LIVE:
            states[place] = state
    return states
