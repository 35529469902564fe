"""The timeline as a picture: a row for each source, and what came first at the left.

Time is stretched around the zero, where seconds decide, and squeezed far from it, where minutes do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peerwatch_detector.web.root.timeline import ALL_SOURCES, TimelineRow

# In units of the view box, as wide as a large picture (deviation.py). Chosen by eye: a source's
# name is left of its row, the longest label ("+10 min") fits between two ticks, marks fit in their
# row.
WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 130, 24, 10, 30
ROW_HEIGHT = 24
_SIZES = ((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"))
_LEAST_APART = 44.0
_SMALLEST, _LARGEST = 4.0, 9.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One row of the timeline: from x to ``until``, the radius grows with how often it was seen."""

    x: float
    until: float
    y: float
    radius: float
    title: str
    is_first: bool
    speaks: bool


@dataclass(frozen=True, slots=True)
class Diagram:
    """What the SVG template draws; all coordinates are in its view box.

    Parameters
    ----------
    height
        Of the view box.
    rows
        (y, source).
    ticks
        (x, text).
    marks
        Those of diagnoses last, so that nothing covers them.
    zero
        x of the first sign.
    """

    height: int
    rows: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]
    marks: tuple[Mark, ...]
    zero: float


def draw(rows: Sequence[TimelineRow], zero: float) -> Diagram | None:
    """Return the picture of a timeline; None if it holds no two times.

    Parameters
    ----------
    rows
        Of the timeline, those without a time are left out.
    zero
        Unix time of the first sign.
    """
    timed = [(row, row.time, row.until or row.time) for row in rows if row.time is not None]
    if len({time for _, time, _ in timed} | {until for _, _, until in timed}) < 2:
        return None
    low = min(0.0, *(_squeezed(time - zero) for _, time, _ in timed))
    high = max(0.0, *(_squeezed(until - zero) for _, _, until in timed))

    def x_of(seconds: float) -> float:
        return LEFT + (_squeezed(seconds) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    used = {row.source for row, _, _ in timed}
    sources = [source for source in ALL_SOURCES if source in used]
    y = {source: TOP + ROW_HEIGHT * (place + 0.5) for place, source in enumerate(sources)}
    marks = [
        Mark(
            x_of(time - zero),
            x_of(until - zero),
            y[row.source],
            min(_LARGEST, _SMALLEST + math.log2(row.count)),
            f"{row.what}, {row.where}" if row.where else row.what,
            bool(row.first_of),
            bool(row.speaks_for),
        )
        for row, time, until in timed
    ]
    return Diagram(
        TOP + ROW_HEIGHT * len(sources) + BOTTOM,
        tuple((y[source], source) for source in sources),
        _ticks(x_of),
        tuple(sorted(marks, key=lambda mark: (mark.is_first, mark.speaks))),
        x_of(0.0),
    )


def _squeezed(seconds: float) -> float:
    return math.copysign(math.log1p(abs(seconds)), seconds)


def _ticks(x_of: Callable[[float], float]) -> tuple[tuple[float, str], ...]:
    """Return the marks of time within the picture that have room beside each other."""
    sides = [
        (sign * size, f"{mark}{text}")
        for sign, mark in ((1, "+"), (-1, "-"))
        for size, text in _SIZES
    ]
    shown = [(x_of(0.0), "0")]
    for seconds, text in sorted(sides, key=lambda each: -abs(each[0])):
        x = x_of(seconds)
        inside = LEFT <= x <= WIDTH - RIGHT
        if inside and all(abs(x - other) >= _LEAST_APART for other, _ in shown):
            shown.append((x, text))
    return tuple(sorted(shown))
