"""Clocks compared without a connection, by collectives: all ranks end one nearly together.

For hosts whose clocks the ranks could not compare themselves. What is left are the differences in
which ranks notice the end, mostly below a millisecond, and the median of many is far better.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from peerwatch_detector.diagnosis.timeline.lines import RankSpan

# In these every rank needs something of every other, so none ends before all have begun.
MEETINGS = frozenset(
    {
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_single",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_single",
        "all_to_all",
        "all_to_all_single",
        "barrier",
    }
)
# Fewer say nothing about how far they scatter: a median of five stands with two outliers.
FEWEST_MARKS = 5
# A line needs three thirds with a median each that a late rank or two do not move: ten marks each.
_FEWEST_FOR_DRIFT = 30
# A few minutes of a hundred collectives a second, and some ten megabytes.
_MOST_MARKS = 50_000
# Of a normal distribution, the median deviation is 1 / 1.4826 of the standard deviation.
_NORMAL = 1.4826

# Group and number of a collective.
Mark = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ClockShift:
    """By how much a rank's clock is ahead, and how far that may be off; in seconds.

    Parameters
    ----------
    reference, offset, drift
        At this time of the rank's clock it is ahead by ``offset``, which rises by ``drift`` a
        second.
    error
        Standard deviation of the offset.
    """

    reference: float
    offset: float
    drift: float
    error: float

    def corrected(self, time: float) -> float:
        """Return a time of the rank's clock by the reference's clock."""
        return time - self.offset - self.drift * (time - self.reference)


@dataclass(slots=True)
class ClockMarks:
    """The ends of collectives by clocks that are known, to compare others with."""

    _ends: dict[Mark, list[float]] = field(default_factory=dict)

    def add(self, span: RankSpan) -> None:
        """Add a span of a rank whose clock is known, if it is a mark."""
        mark = mark_of(span)
        if mark is None:
            return
        ends = self._ends.get(mark)
        if ends is not None:
            ends.append(span.start + span.duration)
        elif len(self._ends) < _MOST_MARKS:
            self._ends[mark] = [span.start + span.duration]

    def shift(self, spans: list[RankSpan]) -> ClockShift | None:
        """Return how a rank's clock is shifted; None if too few of its spans are marks."""
        pairs = []
        for span in spans:
            mark = mark_of(span)
            ends = None if mark is None else self._ends.get(mark)
            if ends:
                own = span.start + span.duration
                pairs.append((own, own - float(np.median(ends))))
        if len(pairs) < FEWEST_MARKS:
            return None
        times, ahead = np.asarray(sorted(pairs)).T
        reference = float(np.median(times))
        drift = _resistant_slope(times, ahead)
        level = ahead - drift * (times - reference)
        offset = float(np.median(level))
        scatter = _NORMAL * float(np.median(np.abs(level - offset)))
        return ClockShift(reference, offset, drift, scatter / len(pairs) ** 0.5)


def mark_of(span: RankSpan) -> Mark | None:
    """Return which collective a span is of, if all its ranks end it together."""
    return (span.group, span.number) if span.collective in MEETINGS else None


def _resistant_slope(times: np.ndarray, values: np.ndarray) -> float:
    """Return the slope between the medians of the first and the last third (Tukey, 1977)."""
    third = len(times) // 3
    if len(times) < _FEWEST_FOR_DRIFT:
        return 0.0
    rise = np.median(values[-third:]) - np.median(values[:third])
    run = np.median(times[-third:]) - np.median(times[:third])
    return float(rise / run) if run > 0 else 0.0
