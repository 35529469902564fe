"""Draws how a node deviates in one metric as PNG: what ``deviation_svg`` shows alone."""

from __future__ import annotations

from peerwatch_detector.web.deviation import (
    ALONE,
    LARGE,
    TITLE_HEIGHT,
    Curve,
    Plot,
    Size,
    legend,
    lines_of,
    runs,
)
from peerwatch_detector.web.raster.canvas import Canvas
from peerwatch_detector.web.raster.png import png

# Sizes of texts, as in the SVG (deviation.py).
_TEXT, _TITLE = 11.0, 14.0


def deviation_png(
    curve: Curve, since: float | None = None, size: Size = LARGE, *, flagged: bool = True
) -> bytes:
    """Return the picture of one metric as a file. Parameters are those of ``deviation_svg``."""
    canvas = Canvas(size.width, size.height + TITLE_HEIGHT, ALONE.paper)
    canvas.text((10, 18), curve.title, _TITLE, ALONE.ink, weight=1.35)
    canvas.text((10, 36), legend(curve, since), _TEXT, ALONE.soft)
    plot = Plot(curve, size, TITLE_HEIGHT)
    _axes(canvas, plot)
    _lines(canvas, plot, flagged=flagged)
    if (marked := curve.within(since)) is not None:
        x = plot.x(marked)
        canvas.dashed((x, plot.top), (x, plot.bottom), ALONE.bad, 1.0)
    return png(canvas.finished())


def _axes(canvas: Canvas, plot: Plot) -> None:
    for value, text in plot.y_marks:
        y = plot.y(value)
        canvas.line([(plot.left, y), (plot.right, y)], ALONE.line, 1.0)
        canvas.text((plot.left - 6, y + 4), text, _TEXT, ALONE.soft, anchor=1)
    for x, text in plot.x_marks:
        anchor = 1 if x > plot.right - 14 else 0.5
        canvas.text((x, plot.bottom + 15), text, _TEXT, ALONE.soft, anchor=anchor)


def _lines(canvas: Canvas, plot: Plot, *, flagged: bool) -> None:
    curve = plot.curve
    xs = [plot.x(time) for time in curve.times]
    for run in runs(curve.times, curve.low, curve.high):
        canvas.area(
            [xs[place] for place in run],
            [plot.y(curve.high[place]) for place in run],
            [plot.y(curve.low[place]) for place in run],
            ALONE.band,
        )
    for values, colour, width in lines_of(curve, ALONE, flagged=flagged):
        for run in runs(curve.times, values):
            canvas.line([(xs[place], plot.y(values[place])) for place in run], colour, width)
