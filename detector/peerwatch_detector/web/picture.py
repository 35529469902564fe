"""Draws one metric of a job as SVG: the node of interest against its peers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import JobFrame
from peerwatch_detector.units import number

WIDTH, HEIGHT = 760, 240
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 12, 30
# More lines than this are grey noise; the rest of a large job shows as its band.
_MOST_PEERS = 64
# Samples of slower series stand some seconds apart; a wider gap is missing data.
_LONGEST_STEP = 15


@dataclass(frozen=True, slots=True)
class Picture:
    """What the SVG template draws; all coordinates are in its view box.

    Parameters
    ----------
    peers
        Polyline points of the peers.
    node
        Polyline points of the node of interest, one entry per run without gaps.
    band
        Polygon of the peers' 10 % to 90 % range.
    since
        x of the moment from which the node deviates, or None.
    x_ticks, y_ticks
        (position, text).
    """

    peers: list[str]
    node: list[str]
    band: str
    since: float | None
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def draw(frame: JobFrame, node: str, since: float | None) -> Picture:
    """Lay out the picture of one metric.

    Parameters
    ----------
    frame
        The metric over the time to show.
    node
        The node drawn in front.
    since
        Unix time to mark.
    """
    frame = _from_first_sample(frame)
    index = frame.nodes.index(node)
    others = [row for row in range(len(frame.nodes)) if row != index]
    low, high = _range(frame.values)
    times = frame.times
    x = LEFT + (times - times[0]) / max(times[-1] - times[0], 1) * (WIDTH - LEFT - RIGHT)
    scale = (HEIGHT - TOP - BOTTOM) / (high - low)
    y = HEIGHT - BOTTOM - (frame.values.astype(np.float64) - low) * scale
    shown = others[:: max(1, -(-len(others) // _MOST_PEERS))]
    marked = None
    if since is not None and times[0] <= since <= times[-1]:
        marked = float(np.interp(since, times, x))
    return Picture(
        peers=[run for row in shown for run in _runs(x, y[row])],
        node=_runs(x, y[index]),
        band=_band(x, y[others]),
        since=marked,
        x_ticks=_time_ticks(times, x, since if marked is not None else None),
        y_ticks=[(HEIGHT - BOTTOM - (v - low) * scale, number(v)) for v in _nice(low, high)],
    )


def _from_first_sample(frame: JobFrame) -> JobFrame:
    """Leave out the time before anything is known; a short job fills its picture."""
    known = np.flatnonzero(np.isfinite(frame.values).any(axis=0))
    first = min(int(known[0]), len(frame.times) - 2) if len(known) else 0
    return replace(frame, times=frame.times[first:], values=frame.values[:, first:])


def _range(values: NDArray[np.float32]) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not known.size:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if low >= 0 and low < 0.5 * high:
        low = 0.0
    pad = 0.05 * (high - low) or max(abs(high) * 0.1, 1e-9)
    return (low if low == 0 else low - pad), high + pad


def _runs(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[str]:
    """Return polyline points, cut where samples are missing."""
    known = np.flatnonzero(np.isfinite(y))
    if not len(known):
        return []
    parts = np.split(known, np.flatnonzero(np.diff(known) > _LONGEST_STEP) + 1)
    return [" ".join(f"{x[i]:.1f},{y[i]:.1f}" for i in part) for part in parts]


def _band(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    if not len(y):
        return ""
    known = np.flatnonzero(np.isfinite(y).any(axis=0))
    if not len(known):
        return ""
    edges = np.nanquantile(y[:, known], [0.1, 0.9], axis=1 if y.ndim == 1 else 0)
    there = [f"{x[i]:.1f},{v:.1f}" for i, v in zip(known, edges[0], strict=True)]
    back = [f"{x[i]:.1f},{v:.1f}" for i, v in zip(known, edges[1], strict=True)]
    return " ".join(there + back[::-1])


def _nice(low: float, high: float) -> list[float]:
    """Return three to six round values between ``low`` and ``high``."""
    raw = (high - low) / 4
    size = 10.0 ** np.floor(np.log10(raw))
    step = size * next(m for m in (1, 2, 5, 10) if m * size >= raw)
    first = np.ceil(low / step) * step
    return [float(v) for v in np.arange(first, high, step)]


def _time_ticks(
    times: NDArray[np.float64], x: NDArray[np.float64], since: float | None
) -> list[tuple[float, str]]:
    """Return marks in minutes from the moment that is marked, else before the newest sample."""
    span = times[-1] - times[0]
    step = next((s for s in (15, 30, 60, 120, 300, 600) if span / s <= 8), 1200)
    zero = times[-1] if since is None else since
    first = np.ceil((times[0] - zero) / step) * step
    ticks = []
    for off in np.arange(first, times[-1] - zero + 1, step)[::-1]:
        text = f"{abs(int(off)) // 60}:{abs(int(off)) % 60:02d}"
        sign = "+" if off > 0 else "-"
        at = float(np.interp(zero + off, times, x))
        ticks.append((at, sign + text if off else ("now" if since is None else text)))
    return ticks
