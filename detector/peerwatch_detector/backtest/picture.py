"""Draws evaluations as one SVG: how right, which faults, how soon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from peerwatch_detector.backtest.evaluation import HEALTHY, Evaluation, Share
from peerwatch_detector.backtest.svg import LINE, SOFT, text_element

_WIDTH, _LEFT, _RIGHT, _ROW = 860, 170, 40, 20
_COLOURS = ("#1565c0", "#c62828", "#ef8a00", "#2e7d32", "#6a3d9a", "#5d6670", "#00838f", "#ad1457")
# The time axis ends here: the paper's slowest call comes 12 minutes after the onset.
_LATEST_SECONDS = 720


def draw(evaluations: Mapping[str, Evaluation]) -> str:
    """Return the picture as the text of an SVG file."""
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(evaluations)}
    parts: list[str] = []
    y = 34
    for panel in (_legend, _rightness, _faults, _delays):
        shapes, y = panel(evaluations, colours, y)
        parts += shapes
    head = (
        f'<svg viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}" role="img" '
        'xmlns="http://www.w3.org/2000/svg" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12">'
    )
    paper = f'<rect width="{_WIDTH}" height="{y}" fill="#fff"/>'
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"


_Panel = tuple[list[str], int]
_Colours = Mapping[str, str]


def _legend(evaluations: Mapping[str, Evaluation], colours: _Colours, y: int) -> _Panel:
    one = next(iter(evaluations.values())).overall
    title = f"{one.cases} cases, {one.faults} with a fault, {one.node_days:.2f} node-days"
    parts = [text_element(20, y, title, size=15)]
    y += 26
    x = 20.0
    for name, colour in colours.items():
        parts.append(f'<circle cx="{x + 5:.1f}" cy="{y - 4}" r="5" fill="{colour}"/>')
        parts.append(text_element(x + 15, y, name))
        x += 40 + 7.2 * len(name)
    return parts, y + 30


def _rightness(evaluations: Mapping[str, Evaluation], colours: _Colours, y: int) -> _Panel:
    """Precision, recall and F1 with their intervals."""
    groups = {
        label: {name: getattr(one.overall, field) for name, one in evaluations.items()}
        for label, field in (("precision", "precision"), ("recall", "recall"), ("F1", "f1"))
    }
    return _shares("How right, with 95 % intervals", groups, colours, y)


def _faults(evaluations: Mapping[str, Evaluation], colours: _Colours, y: int) -> _Panel:
    """Share of the instances found, by fault."""
    known = next(iter(evaluations.values())).by_fault
    groups = {
        f"{fault} ({measure.faults})": {
            name: one.by_fault[fault].recall for name, one in evaluations.items()
        }
        for fault, measure in known.items()
        if fault != HEALTHY
    }
    return _shares("Share found, by fault (instances)", groups, colours, y)


def _shares(
    title: str, groups: Mapping[str, Mapping[str, Share]], colours: _Colours, y: int
) -> _Panel:
    """Draw one row per group: a dot for each method on an axis from 0 to 1."""
    parts = [text_element(20, y, title, size=13)]
    top = y + 14
    row = max(_ROW, 7 * len(colours) + 10)
    bottom = top + row * len(groups)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts += _tick(_x(tick), top, bottom, f"{tick:g}")
    for index, (label, shares) in enumerate(groups.items()):
        middle = top + row * index + row / 2
        parts.append(text_element(_LEFT - 12, middle + 4, label, anchor="end"))
        for place, (name, share) in enumerate(shares.items()):
            parts += _whisker(share, middle + 7 * (place - (len(shares) - 1) / 2), colours[name])
    return parts, bottom + 56


def _whisker(share: Share, y: float, colour: str) -> Iterator[str]:
    if share.value is None or share.low is None or share.high is None:
        return
    yield (
        f'<line x1="{_x(share.low):.1f}" x2="{_x(share.high):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
        f'stroke="{colour}" stroke-width="2" opacity=".45"/>'
    )
    yield f'<circle cx="{_x(share.value):.1f}" cy="{y:.1f}" r="3.6" fill="{colour}"/>'


def _delays(evaluations: Mapping[str, Evaluation], colours: _Colours, y: int) -> _Panel:
    """Share of all instances named by so many seconds after the onset."""
    parts = [
        text_element(20, y, "Share of the faults named rightly, by seconds from the onset", size=13)
    ]
    top, bottom = y + 14, y + 194
    for seconds in range(0, _LATEST_SECONDS + 1, 120):
        parts += _tick(_x(seconds / _LATEST_SECONDS), top, bottom, str(seconds))
    for share in (0.0, 0.5, 1.0):
        level = bottom - share * (bottom - top)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{level:.1f}" y2="{level:.1f}" '
            f'stroke="{LINE}"/>'
        )
        parts.append(text_element(_LEFT - 12, level + 4, f"{share:g}", anchor="end"))
    for name, one in evaluations.items():
        delays = np.sort([v.delay_seconds for v in one.verdicts if v.delay_seconds is not None])
        if not one.overall.faults:
            continue
        points = [f"{_LEFT},{bottom}"]
        height = (bottom - top) / one.overall.faults
        for count, delay in enumerate(delays[delays <= _LATEST_SECONDS], start=1):
            x = _x(float(delay) / _LATEST_SECONDS)
            points += [f"{x:.1f},{bottom - (count - 1) * height:.1f}"]
            points += [f"{x:.1f},{bottom - count * height:.1f}"]
        points.append(f"{_WIDTH - _RIGHT},{points[-1].split(',')[1]}")
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colours[name]}" '
            'stroke-width="2"/>'
        )
    return parts, bottom + 40


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _tick(x: float, top: float, bottom: float, label: str) -> list[str]:
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="{LINE}"/>'
    return [line, text_element(x, bottom + 17, label, anchor="middle", colour=SOFT)]
