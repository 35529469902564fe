"""Draws how a node deviates in one metric as SVG: against band and median of its peers.

It takes plain numbers and returns text, so that views, notifications and files draw alike whether
the numbers come from the detector's memory or from Prometheus.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from peerwatch_detector.units import quantity

# Tick marks of time stand on these multiples (seconds).
_TIME_STEPS = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
_FONT = "system-ui, DejaVu Sans, sans-serif"
# A line is broken where samples are missing for longer than this many usual distances. Chosen: one
# lost scrape is two distances, and is bridged.
_LONGEST_GAP = 2.5


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of one node over time, beside its peers; NaN = no sample.

    Parameters
    ----------
    metric, title, unit
        Its name, what a person calls it, and the base unit in words, such as "bytes per second".
    node, gpu
        Whose; ``gpu`` is empty for the whole node.
    times
        Unix seconds, rising.
    values
        Of the node.
    low, median, high
        Of its peers: the quantiles 0.1, 0.5 and 0.9.
    """

    metric: str
    title: str
    unit: str
    node: str
    gpu: str
    times: Sequence[float]
    values: Sequence[float]
    low: Sequence[float]
    median: Sequence[float]
    high: Sequence[float]

    @property
    def whose(self) -> str:
        """The node, and which GPU of it."""
        return f"{self.node}, GPU {self.gpu}" if self.gpu else self.node

    @property
    def is_known(self) -> bool:
        """Whether there is anything to draw: two samples of the node or of its peers."""
        known = sum(
            math.isfinite(value) or math.isfinite(median)
            for value, median in zip(self.values, self.median, strict=True)
        )
        return known >= 2

    def within(self, time: float | None) -> float | None:
        """Return a Unix time as it is if the curve has it, else None."""
        has = time is not None and self.times[0] <= time <= self.times[-1]
        return time if has else None


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height of a picture, and how many marks its axes have at most."""

    width: int
    height: int
    x_marks: int
    y_marks: int


# In units of the view box; texts are 11 high. Chosen by eye: small ones stand side by side, a large
# one fills the column of text; around the plot are the axes' texts.
SMALL = Size(300, 120, 3, 3)
LARGE = Size(760, 260, 8, 5)
_TOP, _BOTTOM, _RIGHT = 8, 20, 10
# Width of a character of the axes' texts, at most.
_CHARACTER, _LEAST_LEFT = 6.4, 30.0


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours of a picture, as CSS has them."""

    ink: str
    soft: str
    line: str
    paper: str
    bad: str
    peer: str
    band: str


# Within a view the style sheet decides, which knows light and dark.
_WITHIN = Colours(
    "var(--ink,#1d2329)",
    "var(--soft,#5c6670)",
    "var(--line,#dfe3e7)",
    "var(--paper,#fff)",
    "var(--bad,#c62828)",
    "var(--peer,#9aa5b1)",
    "var(--band,#e3e8ee)",
)
ALONE = Colours("#1d2329", "#5c6670", "#dfe3e7", "#fff", "#c62828", "#9aa5b1", "#e3e8ee")
# Two lines of text above the plot, the second at 36.
TITLE_HEIGHT = 44


def deviation_svg(
    curve: Curve,
    since: float | None = None,
    size: Size = SMALL,
    *,
    alone: bool = False,
    flagged: bool = True,
) -> str:
    """Return the picture of one metric.

    Parameters
    ----------
    curve
        What is drawn; ``curve.is_known`` must be true.
    since
        Unix time from which the node deviates, which is marked; None marks nothing.
    size
        Of the view box.
    alone
        Whether it stands for itself, as a file or an attachment: with a title, a background and
        colours of its own. Otherwise the style sheet of the view around it sets them.
    flagged
        Whether the node is drawn as one that is at fault.

    Returns
    -------
    str
        An ``svg`` element, escaped; nothing in it is loaded from elsewhere.
    """
    colours = ALONE if alone else _WITHIN
    plot = Plot(curve, size)
    marked = curve.within(since)
    parts = [*_axes(plot, colours), *_lines(plot, colours, flagged=flagged)]
    if marked is not None:
        parts.append(
            f'<path d="M{plot.x(marked):.0f} {plot.top}V{plot.bottom}" stroke="{colours.bad}" '
            'stroke-dasharray="4 3"/>'
        )
    body = "".join(parts)
    label = escape(_label(curve, marked))
    height = size.height + TITLE_HEIGHT if alone else size.height
    if alone:
        body = _framed(curve, since, size, height, body, colours)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size.width} {height}" role="img" '
        f'aria-label="{label}" font-family="{_FONT}" font-size="11" fill="none"'
        + (f' width="{size.width}" height="{height}"' if alone else "")
        + f">{body}</svg>"
    )


def _label(curve: Curve, since: float | None) -> str:
    """Return in words what the picture shows: the newest values, and since when they differ."""
    pairs = [
        (value, median)
        for value, median in zip(curve.values, curve.median, strict=True)
        if math.isfinite(value) and math.isfinite(median)
    ]
    said = f"{curve.title} of {curve.whose} and its peers"
    if pairs:
        value, median = pairs[-1]
        said += (
            f": at the end {quantity(value, curve.unit)}, "
            f"median of the peers {quantity(median, curve.unit)}"
        )
    return said if since is None else f"{said}; deviates since {_clock(since, seconds=True)} UTC"


def _framed(
    curve: Curve,
    since: float | None,
    size: Size,
    height: int,
    body: str,
    colours: Colours,
) -> str:
    """Return the picture below a title, on a background."""
    below = legend(curve, since)
    return (
        f'<rect width="{size.width}" height="{height}" fill="{colours.paper}"/>'
        f'<text x="10" y="18" font-size="14" font-weight="600" fill="{colours.ink}">'
        f"{escape(curve.title)}</text>"
        f'<text x="10" y="36" fill="{colours.soft}">{escape(below)}</text>'
        f'<g transform="translate(0 {TITLE_HEIGHT})">{body}</g>'
    )


def legend(curve: Curve, since: float | None) -> str:
    """Return what the colours of a picture are, and since when the node deviates (Unix time)."""
    when = "" if since is None else f" · deviates since {_clock(since, seconds=True)} UTC"
    return f"red {curve.whose} · grey band and line: its peers, 10 to 90 % and median{when}"


class Plot:
    """Where values and times lie in the view box; ``above`` is left free for a title."""

    def __init__(self, curve: Curve, size: Size, above: int = 0) -> None:
        self.curve = curve
        self.top, self.bottom = above + _TOP, above + size.height - _BOTTOM
        self.right = size.width - _RIGHT
        series = (curve.values, curve.low, curve.median, curve.high)
        known = [value for each in series for value in each if math.isfinite(value)]
        self.low, self.high = _range(known)
        self.y_marks = [
            (value, quantity(value, curve.unit))
            for value in _round_values(self.low, self.high, size.y_marks)
        ]
        longest = max((len(text) for _, text in self.y_marks), default=0)
        self.left = round(max(_LEAST_LEFT, 10 + _CHARACTER * longest))
        self._start = curve.times[0]
        self._seconds = max(curve.times[-1] - curve.times[0], 1e-9)
        self.x_marks = [
            (self.x(time), text)
            for time, text in time_marks(curve.times[0], curve.times[-1], size.x_marks)
        ]

    def x(self, time: float) -> float:
        """Return where a time lies."""
        return self.left + (time - self._start) / self._seconds * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)


def _range(known: Sequence[float]) -> tuple[float, float]:
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    if 0 <= low < 0.5 * high:
        low = 0.0
    pad = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return (low if low == 0 else low - pad), high + pad


def lines_of(
    curve: Curve, colours: Colours, *, flagged: bool
) -> tuple[tuple[Sequence[float], str, float], ...]:
    """Return the lines of a picture, each with its colour and width; the last one is on top."""
    return (
        (curve.median, colours.peer, 1.4),
        (curve.values, colours.bad if flagged else colours.ink, 2.0),
    )


def _lines(plot: Plot, colours: Colours, *, flagged: bool) -> list[str]:
    curve = plot.curve
    drawn = [
        f'<path d="{_band(plot, run)}" fill="{colours.band}"/>'
        for run in runs(curve.times, curve.low, curve.high)
    ]
    drawn += [
        f'<path d="{path}" stroke="{colour}" stroke-width="{width:g}" stroke-linejoin="round"/>'
        for values, colour, width in lines_of(curve, colours, flagged=flagged)
        if (path := _path(plot, values))
    ]
    return drawn


def runs(times: Sequence[float], *several: Sequence[float]) -> list[list[int]]:
    """Return the places at which all series are known, cut where samples are missing."""
    places = [
        place
        for place in range(len(times))
        if all(math.isfinite(values[place]) for values in several)
    ]
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(times))
    usual = gaps[len(gaps) // 2] if gaps else 0.0
    found: list[list[int]] = []
    for place in places:
        if found and times[place] - times[found[-1][-1]] <= _LONGEST_GAP * usual:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _path(plot: Plot, values: Sequence[float]) -> str:
    """Return a line; a single sample is a dot, which a line of no length would hide."""
    drawn = []
    for run in runs(plot.curve.times, values):
        points = [f"{plot.x(plot.curve.times[i]):.0f} {plot.y(values[i]):.1f}" for i in run]
        drawn.append(f"M{'L'.join(points)}" if len(points) > 1 else f"M{points[0]}h1")
    return "".join(drawn)


def _band(plot: Plot, run: Sequence[int]) -> str:
    curve = plot.curve
    there = [f"{plot.x(curve.times[i]):.0f} {plot.y(curve.high[i]):.1f}" for i in run]
    back = [f"{plot.x(curve.times[i]):.0f} {plot.y(curve.low[i]):.1f}" for i in reversed(run)]
    return f"M{'L'.join([*there, *back])}Z"


def _axes(plot: Plot, colours: Colours) -> list[str]:
    parts = []
    for value, text in plot.y_marks:
        y = plot.y(value)
        parts.append(
            f'<path d="M{plot.left} {y:.0f}H{plot.right}" stroke="{colours.line}"/>'
            f'<text x="{plot.left - 6}" y="{y + 4:.0f}" text-anchor="end" fill="{colours.soft}">'
            f"{escape(text)}</text>"
        )
    for x, text in plot.x_marks:
        anchor = "end" if x > plot.right - 14 else "middle"
        parts.append(
            f'<text x="{x:.0f}" y="{plot.bottom + 15}" text-anchor="{anchor}" '
            f'fill="{colours.soft}">{text}</text>'
        )
    return parts


def _round_values(low: float, high: float, most: int) -> list[float]:
    """Return up to ``most`` round values between two others."""
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = size * next(m for m in (1, 2, 2.5, 5, 10) if m * size >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def time_marks(start: float, end: float, most: int) -> list[tuple[float, str]]:
    """Return up to about ``most`` round times of day (UTC) between two Unix times, with texts."""
    step = next((s for s in _TIME_STEPS if (end - start) / s <= most), _TIME_STEPS[-1])
    seconds = step < 60
    first = math.ceil(start / step)
    return [
        (step * k, _clock(step * k, seconds=seconds))
        for k in range(first, math.floor(end / step) + 1)
    ]


def _clock(time: float, *, seconds: bool) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S" if seconds else "%H:%M")
