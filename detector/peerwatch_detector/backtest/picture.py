"""Draws evaluations as one picture: how right, which faults, how soon."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from peerwatch_detector.backtest.evaluation import HEALTHY, Evaluation, Share
from peerwatch_detector.backtest.figure import style, svg_text

Evaluations = Mapping[str, Evaluation]
# Of a panel, by their names: the share of every method.
Rows = dict[str, dict[str, Share]]

_COLOURS = ("#1565c0", "#c62828", "#ef8a00", "#2e7d32", "#6a3d9a", "#5d6670", "#00838f", "#ad1457")
# The time axis ends here: the paper's slowest call comes 12 minutes after the onset.
_LATEST_SECONDS = 720
# Inches: width, head, title and axis of a panel, a row, what a method adds to it, and the delays.
# Chosen by eye, for texts of 9 points.
_WIDTH, _HEAD, _FRAME, _ROW, _METHOD, _DELAYS = 8.6, 0.6, 0.7, 0.14, 0.075, 2.0


def draw(evaluations: Evaluations) -> str:
    """Return the picture as the text of an SVG file."""
    return svg_text(figure_of(evaluations))


def figure_of(evaluations: Evaluations) -> Figure:
    """Return the picture: panels for the shares, the faults and the delays."""
    panels = {
        "How right, with 95 % intervals": _rightness(evaluations),
        "Share found, by fault (instances)": _recall_by_fault(evaluations),
    }
    panels = {title: rows for title, rows in panels.items() if rows}
    row = _ROW + _METHOD * len(evaluations)
    heights = [_FRAME + row * len(rows) for rows in panels.values()] + [_DELAYS]
    with style():
        figure = Figure(figsize=(_WIDTH, _HEAD + sum(heights)), layout="constrained")
        *shares, delays = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
        for axes, (title, rows) in zip(shares, panels.items(), strict=True):
            _draw_shares(axes, title, rows)
        _draw_delays(delays, evaluations)
        overall = next(iter(evaluations.values())).overall
        figure.legend(
            *shares[0].get_legend_handles_labels(),
            title=f"{overall.cases} cases, {overall.faults} with a fault, "
            f"{overall.node_days:.2f} node-days",
            title_fontsize=11,
            loc="outside upper left",
            alignment="left",
            ncols=4,
            frameon=False,
        )
    return figure


def _rightness(evaluations: Evaluations) -> Rows:
    """Return precision, recall and F1 of every method."""
    return {
        title: {
            name: getattr(evaluation.overall, measure) for name, evaluation in evaluations.items()
        }
        for title, measure in (("precision", "precision"), ("recall", "recall"), ("F1", "f1"))
    }


def _recall_by_fault(evaluations: Evaluations) -> Rows:
    """Return the share of the instances that every method found, by fault."""
    known = next(iter(evaluations.values())).by_fault
    return {
        f"{fault} ({measure.faults})": {
            name: evaluation.by_fault[fault].recall for name, evaluation in evaluations.items()
        }
        for fault, measure in known.items()
        if fault != HEALTHY
    }


def _draw_shares(axes: Axes, title: str, rows: Rows) -> None:
    """Draw one row per group: a dot with its interval for each method, from 0 to 1."""
    names = list(next(iter(rows.values())))
    for index, name in enumerate(names):
        shares = [row[name] for row in rows.values()]
        value, low, high = np.array(
            [(share.value, share.low, share.high) for share in shares], dtype=np.float64
        ).T
        axes.errorbar(
            value,
            np.arange(len(rows)) + (index - (len(names) - 1) / 2) * 0.7 / len(names),
            # An interval that ends at its value may lie a rounding error beside it.
            xerr=np.maximum(0.0, [value - low, high - value]),
            fmt="o",
            markersize=4.5,
            color=_COLOURS[index % len(_COLOURS)],
            ecolor=(_COLOURS[index % len(_COLOURS)], 0.45),
            elinewidth=2,
            label=name,
        )
    axes.set_title(title)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.grid(visible=False, axis="y")


def _draw_delays(axes: Axes, evaluations: Evaluations) -> None:
    """Draw the share of all instances flagged by so many seconds after the onset."""
    for index, (name, evaluation) in enumerate(evaluations.items()):
        faults = evaluation.overall.faults
        if not faults:
            continue
        delays = [verdict.delay_seconds for verdict in evaluation.verdicts]
        within = sorted(delay for delay in delays if delay is not None and delay <= _LATEST_SECONDS)
        axes.step(
            [0.0, *within, _LATEST_SECONDS],
            np.array([*range(len(within) + 1), len(within)]) / faults,
            where="post",
            color=_COLOURS[index % len(_COLOURS)],
            linewidth=2,
            label=name,
        )
    axes.set_title("Share of the faults flagged rightly, by seconds from the onset")
    axes.set_xlim(0, _LATEST_SECONDS)
    axes.set_xticks(range(0, _LATEST_SECONDS + 1, 120))
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
