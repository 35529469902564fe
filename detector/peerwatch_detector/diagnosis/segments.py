"""How long each rank takes for each segment of a step, and against the median of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.by_rank import number_of
from peerwatch_detector.frame import Series

STEP = "step"
# Of the hook, in the order of a step; those of the program's own come after them.
_ORDER = (STEP, "data", "forward", "backward", "optimizer", "collective", "checkpoint", "gc")

# PromQL: seconds of each segment per second, and steps per second, over two minutes: some scrapes
# and, of most jobs, some steps.
QUERIES = {
    "seconds": "sum by (node, rank, segment) (rate(span_seconds_total{ {{ job }} }[2m]))",
    "steps": 'sum by (node, rank) (rate(span_count_total{ {{ job }}, segment="step"}[2m]))',
}


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """Seconds per step of ranks in segments.

    Parameters
    ----------
    ranks
        Rank and node, in the order of the ranks.
    segments
        Names.
    seconds
        Shape (n_ranks, n_segments); seconds per step, NaN where a rank has none of it.
    median
        Over all ranks of the job that have a segment, shape (n_segments,); seconds.
    """

    ranks: tuple[tuple[int, str], ...]
    segments: tuple[str, ...]
    seconds: NDArray[np.float64]
    median: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        ranks: tuple[tuple[int, str], ...],
        segments: tuple[str, ...],
        seconds: NDArray[np.float64],
    ) -> SegmentTimes:
        """Return the times of all ranks of a job, with their median."""
        median = np.array([np.median(column[~np.isnan(column)]) for column in seconds.T])
        return cls(ranks, segments, seconds, median)

    @property
    def ratios(self) -> NDArray[np.float64]:
        """Each rank's seconds by the median, shape (n_ranks, n_segments); NaN = not known."""
        return self.seconds / np.where(self.median > 0, self.median, np.nan)

    def farthest(self, count: int) -> SegmentTimes:
        """Return the ranks whose largest difference from the median, in seconds, is largest."""
        if len(self.ranks) <= count:
            return self
        away = np.nanmax(np.abs(self.seconds - self.median), axis=1)
        chosen = np.sort(np.argsort(-away, kind="stable")[:count])
        ranks = tuple(self.ranks[place] for place in chosen)
        return SegmentTimes(ranks, self.segments, self.seconds[chosen], self.median)


def segment_times(seconds: Sequence[Series], steps: Sequence[Series]) -> SegmentTimes | None:
    """Return what the answers to ``QUERIES`` say; None if no rank made a step.

    Parameters
    ----------
    seconds, steps
        The answers; what lacks a label or is not a finite number is left out.
    """
    rate = {
        key: float(series.values[-1])
        for series in steps
        if (key := _key(series)) is not None and series.values[-1] > 0
    }
    table: dict[tuple[int, str], dict[str, float]] = {}
    for series in seconds:
        key, value = _key(series), float(series.values[-1])
        segment = series.labels.get("segment", "")
        if key in rate and segment and np.isfinite(value):
            table.setdefault(key, {})[segment] = value / rate[key]
    if not table:
        return None
    ranks = tuple(sorted(table))
    names = {name for row in table.values() for name in row}
    own = sorted(names.difference(_ORDER))
    segments = (*(name for name in _ORDER if name in names), *own)
    return SegmentTimes.of(
        ranks,
        segments,
        np.array([[table[rank].get(name, np.nan) for name in segments] for rank in ranks]),
    )


def _key(series: Series) -> tuple[int, str] | None:
    rank = number_of(series.labels.get("rank", ""))
    return None if rank is None else (rank, series.labels.get("node", ""))
