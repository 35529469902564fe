"""The picture of a replay: what each policy wastes, and what it loses."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from peerwatch_detector.backtest.figure import SOFT, style, svg_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_demo.retries.report import Row

_BARS = "#3b7dd8"
# The goals of retry advice, in percent of what always retrying wastes and in points of success.
_GOAL_WASTED, _GOAL_LOSS = 40.0, 1.0


def picture(rows: Sequence[Row]) -> str:
    """Return an SVG with a bar for each policy, of both."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only pictures need it

    with style():
        figure = Figure(figsize=(8.0, 0.42 * len(rows) + 1.1), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        names = [row.policy for row in rows][::-1]
        for axes, title, values, goal, form in (
            (
                left,
                "wasted retry GPU time, % of always 3",
                [[100 * value for value in row.wasted] for row in rows][::-1],
                _GOAL_WASTED,
                "{:.0f}",
            ),
            (
                right,
                "success loss, points (goal: at most 1)",
                [list(row.loss) for row in rows][::-1],
                _GOAL_LOSS,
                "{:.2f}",
            ),
        ):
            means = [mean(each) for each in values]
            spread = [
                [middle - min(each) for middle, each in zip(means, values, strict=True)],
                [max(each) - middle for middle, each in zip(means, values, strict=True)],
            ]
            axes.barh(names, means, color=_BARS, height=0.6, xerr=spread, ecolor=SOFT)
            axes.axvline(goal, color=SOFT, linestyle="--", linewidth=0.8)
            axes.set_title(title)
            axes.grid(visible=False, axis="y")
            widest = max(means) or 1.0
            for place, (middle, each) in enumerate(zip(means, values, strict=True)):
                axes.text(max(each) + widest * 0.02, place, form.format(middle), va="center")
            axes.set_xlim(0, widest * 1.15)
        return svg_text(figure)
