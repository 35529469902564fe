"""All nodes of a job over time in one metric: who is unlike the others, and from when on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.runs import runs
from peerwatch_detector.units import quantity
from peerwatch_detector.web.deviation import time_marks

# Rows: of larger jobs the nodes that differ most. Chosen: with 14 units each they fit on a screen.
MOST_ROWS = 32
# As many as the heat map of segments has (segments.py), and as an eye tells apart.
_SHADES = 5
# What is called the spread of the nodes: so many times their median distance from the median, which
# 99 % of values that are spread normally are within.
_SPREAD_IN_MEDIANS = 4.0
# In units of the view box, as wide as a large picture (deviation.py); 22 characters of up to 6.4
# fit in what is left of the cells.
_WIDTH, _LEFT, _RIGHT, _ROW, _BOTTOM = 760, 150, 8, 14, 20
_LONGEST_NAME = 22


@dataclass(frozen=True, slots=True)
class HeatMap:
    """How far the nodes are from the median of all, in steps of the spread.

    Parameters
    ----------
    title
        Of the metric.
    nodes
        Those that differ most first; ``left_out`` more differ less.
    times
        Unix seconds of the columns.
    shades
        0 to 5, shape (n_nodes, n_times); -1 = no sample.
    spread
        One step, in words.
    """

    title: str
    nodes: tuple[str, ...]
    times: tuple[float, ...]
    shades: NDArray[np.int64]
    left_out: int
    spread: str

    @property
    def hot(self) -> tuple[str, ...]:
        """The nodes that are far from the others at some time."""
        return tuple(
            node for node, row in zip(self.nodes, self.shades, strict=True) if row.max() >= 2
        )


def heat_map(
    title: str,
    unit: str,
    nodes: Sequence[str],
    times: Sequence[float],
    values: NDArray[np.float64],
    least: float,
) -> HeatMap | None:
    """Return the heat map of a metric; None if no three nodes have samples.

    Parameters
    ----------
    title, unit
        Of the metric.
    nodes, times
        Of rows and columns.
    values
        Shape (n_nodes, n_times), NaN = no sample.
    least
        The smallest difference that matters, in the unit.
    """
    if np.isfinite(values).any(axis=1).sum() < 3 or not len(times):
        return None
    known = np.isfinite(values).any(axis=0)
    median = np.full(len(times), np.nan)
    width = median.copy()
    median[known] = np.nanmedian(values[:, known], axis=0)
    # One node far away must not widen the scale that it is measured by.
    width[known] = np.nanmedian(np.abs(values - median)[:, known], axis=0)
    spread = max(_SPREAD_IN_MEDIANS * float(np.nanmedian(width)), least)
    steps = np.abs(values - median) / spread
    shades = np.where(np.isfinite(steps), np.minimum(np.nan_to_num(steps), _SHADES), -1)
    shades = np.floor(shades).astype(np.int64)
    order = np.argsort(-np.nan_to_num(steps).sum(axis=1), kind="stable")[:MOST_ROWS]
    return HeatMap(
        title,
        tuple(nodes[place] for place in order),
        tuple(times),
        shades[order],
        len(nodes) - len(order),
        quantity(spread, unit),
    )


def heat_svg(found: HeatMap, since: float | None) -> str:
    """Return it as an ``svg`` element: rows are nodes, red is far from the others."""
    height = _ROW * len(found.nodes) + _BOTTOM
    step = (_WIDTH - _LEFT - _RIGHT) / len(found.times)
    hot = ", ".join(found.hot[:4]) or "none"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(found.title)} of the nodes over time; far from the others: '
        f'{escape(hot)}" font-family="system-ui, DejaVu Sans, sans-serif" font-size="11">'
    ]
    for place, node in enumerate(found.nodes):
        name = node if len(node) <= _LONGEST_NAME else f"…{node[1 - _LONGEST_NAME :]}"
        parts.append(
            f'<text x="{_LEFT - 8}" y="{_ROW * place + 11}" text-anchor="end" '
            f'fill="var(--{"bad" if node in found.hot else "soft"})">{escape(name)}</text>'
        )
    right, bottom = _WIDTH - _RIGHT, _ROW * len(found.nodes)
    parts.append(f'<path d="M{_LEFT} 0H{right}V{bottom}H{_LEFT}Z" fill="var(--band)"/>')
    for shade in (-1, *range(1, _SHADES + 1)):
        if path := _cells(found.shades, shade, step):
            style = 'fill="var(--paper)"' if shade < 0 else f'class="shade{shade}"'
            parts.append(f'<path d="{path}" {style}/>')
    first, last = found.times[0], found.times[-1]
    scale = (right - _LEFT) / max(last - first + (last - first) / len(found.times), 1e-9)
    if since is not None and first <= since <= last:
        x = _LEFT + (since - first) * scale
        parts.append(f'<path d="M{x:.0f} 0V{bottom}" stroke="var(--bad)" stroke-dasharray="4 3"/>')
    for time, text in time_marks(first, last, 8):
        parts.append(
            f'<text x="{_LEFT + (time - first) * scale:.0f}" y="{height - 5}" '
            f'text-anchor="middle" fill="var(--soft)">{text}</text>'
        )
    return "".join([*parts, "</svg>"])


def _cells(shades: NDArray[np.int64], shade: int, step: float) -> str:
    """Return the outline of all cells of a shade, neighbours in a row together."""
    drawn = []
    for place, row in enumerate(shades == shade):
        for begin, end in runs(row):
            left, right = round(_LEFT + begin * step), round(_LEFT + end * step)
            drawn.append(f"M{left} {_ROW * place + 1}H{right}v{_ROW - 2}H{left}Z")
    return "".join(drawn)
