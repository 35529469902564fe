"""How a cost grows with the size of a job: an exponent, and a picture of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

_COLOURS = ("#1f60c4", "#8ab8ff", "#c4162a", "#ff9830")


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return p of the power law cost = c * size ** p that fits best, in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def draw(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a picture (SVG) of costs in seconds over sizes in nodes, both logarithmic."""
    # The table needs no matplotlib.
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    from peerwatch_detector.backtest.figure import style, svg_text

    sizes = sorted({size for line in lines.values() for size, _ in line})
    with style():
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        for (name, line), colour in zip(lines.items(), _COLOURS, strict=False):
            axes.loglog(*zip(*line, strict=True), color=colour, linewidth=2, label=name)
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g} s")
        axes.set_xlabel("nodes of the job")
        figure.legend(loc="outside right upper", frameon=False)
    return svg_text(figure)
