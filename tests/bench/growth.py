"""How a cost grows with the size of a job: an exponent, and a picture of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from peerwatch_detector.backtest.svg import LINE, text_element

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 20, 48
_LINE = 15
_COLOURS = ("#1f60c4", "#8ab8ff", "#c4162a", "#ff9830")


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return p of the power law cost = c * size ** p that fits best, in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def draw(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a picture (SVG) of costs in seconds over sizes in nodes, both logarithmic."""
    points = [point for line in lines.values() for point in line]
    sizes, costs = ([point[axis] for point in points] for axis in (0, 1))
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    least, most = math.log10(min(sizes)), math.log10(max(sizes))

    def place(size: float, cost: float) -> tuple[float, float]:
        across = (math.log10(size) - least) / (most - least)
        up = (math.log10(cost) - low) / (high - low)
        x = _LEFT + across * (_WIDTH - _LEFT - _RIGHT)
        return x, _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    right = _WIDTH - _RIGHT
    for power in range(low, high + 1):
        _, y = place(min(sizes), 10.0**power)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="{LINE}"/>')
        parts.append(text_element(_LEFT - 8, y + 4, f"{10.0**power:g} s", anchor="end"))
    for size in sorted(set(sizes)):
        x, bottom = place(size, 10.0**low)
        parts.append(text_element(x, bottom + 18, f"{size:,.0f}", anchor="middle"))
    parts.append(
        text_element((_LEFT + right) / 2, _HEIGHT - 8, "nodes of the job", anchor="middle")
    )
    free = float(_HEIGHT)
    # From the lowest up, so that no name is written over another.
    by_end = sorted(zip(lines.items(), _COLOURS, strict=False), key=lambda one: one[0][1][-1][1])
    for (name, line), colour in by_end:
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = place(*line[-1])
        free = min(y + 4, free - _LINE)
        parts.append(text_element(x + 10, free, name, colour=colour))
    return "\n".join([*parts, "</svg>\n"])
