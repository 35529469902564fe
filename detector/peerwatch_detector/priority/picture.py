"""Draws the tree of the metric priority as SVG, from left to right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from peerwatch_detector.backtest.svg import LINE, SOFT, text_element
from peerwatch_detector.priority.tree import Branch, Priority
from peerwatch_detector.units import metric_words

_LEFT, _TOP, _BOTTOM = 20, 92, 26
_COLUMN, _ROW = 186, 46
_BOX_WIDTH, _BOX_HEIGHT = 150, 36
# What fits into a box at its size of letters.
_LONGEST = 24
_NARROWEST = 860
_EDGE = "#c3cad1"
_FAULTY, _HEALTHY = "#c62828", "#1565c0"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A branch with the place of its box: the left edge and the middle of its height."""

    branch: Branch
    x: float
    y: float
    children: tuple[_Placed, ...] = ()


def draw(priority: Priority) -> str:
    """Return the picture as the text of an SVG file."""
    root, bottom = _placed(priority.root, 0, _TOP)
    every = list(_every(root))
    right = max(one.x for one in every) + _BOX_WIDTH + _LEFT
    width, height = max(_NARROWEST, right), bottom + _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        'role="img" xmlns="http://www.w3.org/2000/svg" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12">',
        "<title>Decision tree of the metric priority</title>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        *_head(priority),
        *(edge for one in every for edge in _edges(one)),
        *(shape for one in every for shape in _box(one)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _placed(branch: Branch, depth: int, top: float) -> tuple[_Placed, float]:
    """Lay out a branch below ``top`` and return it with where the next one may begin."""
    x = _LEFT + depth * _COLUMN
    if branch.below is None or branch.above is None:
        return _Placed(branch, x, top + _ROW / 2), top + _ROW
    # Higher scores stand higher.
    above, top = _placed(branch.above, depth + 1, top)
    below, top = _placed(branch.below, depth + 1, top)
    return _Placed(branch, x, (above.y + below.y) / 2, (above, below)), top


def _every(one: _Placed) -> Iterator[_Placed]:
    yield one
    for child in one.children:
        yield from _every(child)


def _head(priority: Priority) -> Iterator[str]:
    title = (
        f"What tells faulty windows: {priority.cases} cases, {priority.faults} with a fault, "
        f"{priority.windows} windows"
    )
    yield text_element(_LEFT, 34, title, size=15)
    right = (
        f"Balanced accuracy on held-out cases {priority.accuracy:.2f}, at most "
        f"{priority.permuted[-1]:.2f} with labels dealt anew among the cases"
    )
    yield text_element(_LEFT, 56, right, colour=SOFT)
    x = _LEFT + 5
    for colour, words in ((_FAULTY, "faulty"), (_HEALTHY, "healthy")):
        yield f'<circle cx="{x}" cy="74" r="5" fill="{colour}"/>'
        yield text_element(x + 10, 78, words)
        x += 74
    note = (
        "share of the windows' weight, every case alike; asked is the largest Z-score over the "
        "nodes"
    )
    yield text_element(x, 78, note, colour=SOFT)


def _edges(one: _Placed) -> Iterator[str]:
    """Draw what leads to the children, the thicker the more weight goes there."""
    start = one.x + _BOX_WIDTH
    for child in one.children:
        middle = (start + child.x) / 2
        thick = 1 + 7 * child.branch.weight
        yield (
            f'<path d="M{start:.1f},{one.y:.1f} C{middle:.1f},{one.y:.1f} {middle:.1f},'
            f'{child.y:.1f} {child.x:.1f},{child.y:.1f}" fill="none" stroke="{_EDGE}" '
            f'stroke-width="{thick:.1f}"/>'
        )
    # The signs stand where the lines do not run: these come from between the two children.
    for child, sign, away in zip(one.children, (">", "≤"), (-4, 12), strict=False):
        yield text_element(child.x - 8, child.y + away, sign, anchor="end", colour=SOFT)


def _box(one: _Placed) -> Iterator[str]:
    """Draw a question or an answer, with the share of faulty windows along its lower edge."""
    branch, top = one.branch, one.y - _BOX_HEIGHT / 2
    percent = f"{100 * branch.faulty:.0f} % faulty"
    if one.children:
        words = metric_words(branch.metric)
        shown = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
        lines = (shown, f"over {branch.threshold:.2f}? {percent}")
        fill = "#fff"
    else:
        words, fill = percent, "#f5f7f9"
        lines = (percent, f"{branch.windows} window{'' if branch.windows == 1 else 's'}")
    yield (
        f'<rect x="{one.x:.1f}" y="{top:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="3" '
        f'fill="{fill}" stroke="{LINE}"><title>{escape(words)}</title></rect>'
    )
    faulty = _BOX_WIDTH * branch.faulty
    edge = top + _BOX_HEIGHT - 3
    for x, width, colour in (
        (one.x, faulty, _FAULTY),
        (one.x + faulty, _BOX_WIDTH - faulty, _HEALTHY),
    ):
        yield (f'<rect x="{x:.1f}" y="{edge:.1f}" width="{width:.1f}" height="3" fill="{colour}"/>')
    yield text_element(one.x + 8, top + 14, lines[0], size=11)
    yield text_element(one.x + 8, top + 27, lines[1], size=10, colour=SOFT)
