"""Draws the tree of the metric priority."""

from __future__ import annotations

from textwrap import shorten, wrap

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.tree import plot_tree

from peerwatch_detector.backtest.figure import SOFT, style, svg_text
from peerwatch_detector.priority.tree import Priority
from peerwatch_detector.units import metric_words

# Inches: a leaf's column, a level of the tree, the head, and the least width, which the head needs.
# Chosen by eye, for texts of 8 points.
_COLUMN, _LEVEL, _HEAD, _MIN_WIDTH = 1.15, 1.0, 0.9, 8.6
# Letters of a metric's name in a box: of a line, as wide as a column, and in all, two lines.
_LINE, _LONGEST = 16, 32


def draw(priority: Priority) -> str:
    """Return the picture as the text of an SVG file."""
    return svg_text(figure_of(priority))


def figure_of(priority: Priority) -> Figure:
    """Return the picture: the tree from its root down, faulty windows red, healthy ones blue."""
    tree = priority.tree
    width = max(_MIN_WIDTH, _COLUMN * tree.get_n_leaves())
    height = _HEAD + _LEVEL * (1 + tree.get_depth())
    with style():
        figure = Figure(figsize=(width, height))
        # plot_tree measures its boxes, which needs a canvas that can.
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1 - _HEAD / height))
        drawn = plot_tree(tree, rounded=True, ax=axes, fontsize=8)
        boxes = [text for text in drawn if text.get_bbox_patch() is not None]
        shares, colours = _faulty_shares(priority), colormaps["RdBu_r"]
        for box, words, share in zip(boxes, node_texts(priority), shares, strict=True):
            box.set_text(words)
            # The colour map's ends are too dark to write on.
            box.get_bbox_patch().set_facecolor(colours(0.25 + 0.5 * share))
        _draw_head(figure, priority)
    return figure


def node_texts(priority: Priority) -> list[str]:
    """Return what stands in the box of every node of the tree, in the order of its nodes."""
    inner, percent = priority.tree.tree_, 100 * _faulty_shares(priority)
    return [
        f"{_split(priority, node)}\n{percent[node]:.0f} % faulty"
        if inner.feature[node] >= 0
        else f"{percent[node]:.0f} % faulty\n{_counted(int(inner.n_node_samples[node]))}"
        for node in range(inner.node_count)
    ]


def _faulty_shares(priority: Priority) -> NDArray[np.float64]:
    """Return by node of the tree the share of its windows' weight that is faulty."""
    healthy, faulty = priority.tree.tree_.value[:, 0].T
    shares: NDArray[np.float64] = faulty / (healthy + faulty)
    return shares


def _split(priority: Priority, node: int) -> str:
    inner = priority.tree.tree_
    words = metric_words(priority.metrics[inner.feature[node]])
    lines = wrap(shorten(words, _LONGEST, placeholder="…"), _LINE)
    return "\n".join([*lines, f"≤ {inner.threshold[node]:.2f}?"])


def _counted(windows: int) -> str:
    return f"{windows} window{'' if windows == 1 else 's'}"


def _draw_head(figure: Figure, priority: Priority) -> None:
    lines = (
        f"What tells faulty windows: {priority.cases} cases, {priority.faults} with a fault, "
        f"{priority.windows} windows",
        f"Balanced accuracy on held-out cases {priority.accuracy:.2f}, at most "
        f"{priority.permuted[-1]:.2f} with labels permuted among the cases",
        "Largest Z-score over the nodes; share of the windows' weight, every case alike",
    )
    for number, line in enumerate(lines):
        height = 1 - (0.25 + 0.22 * number) / figure.get_figheight()
        figure.text(
            0.2 / figure.get_figwidth(),
            height,
            line,
            fontsize=9 if number else 11,
            color=SOFT if number else "black",
        )
