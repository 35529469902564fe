"""Draws on pixels: areas, lines and texts, in the coordinates of a view box; y points down."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.web.raster import letters

Point = tuple[float, float]
# Pixels of a picture per unit of its view box: phones have as many to a point.
_SCALE = 2
# Width of a letter's strokes, as a share of the text's size. Chosen by eye: a regular weight.
_STROKE = 0.11


class Canvas:
    """A picture under way.

    Parameters
    ----------
    width, height
        Of the view box.
    paper
        Colour of the background as #rrggbb, as all colours.
    """

    def __init__(self, width: int, height: int, paper: str) -> None:
        self._pixels = np.empty((height * _SCALE, width * _SCALE, 3), np.float32)
        self._pixels[:] = _rgb(paper)

    def finished(self) -> NDArray[np.uint8]:
        """Return the pixels, shape (height, width, 3)."""
        return np.rint(self._pixels).astype(np.uint8)

    def line(self, points: Sequence[Point], colour: str, width: float) -> None:
        """Draw a line with round ends and corners; a single point is a dot."""
        left, right, top, bottom = self._box(points, width)
        if left >= right or top >= bottom:
            return
        # Covered once by all its parts: where two meet it would be darker otherwise.
        cover = np.zeros((bottom - top, right - left), np.float32)
        for begin, end in itertools.pairwise([*points, points[-1]]):
            x0, x1, y0, y1 = box = self._box((begin, end), width)
            if x0 < x1 and y0 < y1:
                part = cover[y0 - top : y1 - top, x0 - left : x1 - left]
                np.maximum(part, _near(begin, end, width, box), out=part)
        self._blend((left, right, top, bottom), cover, colour)

    def dashed(self, begin: Point, end: Point, colour: str, width: float) -> None:
        """Draw a straight line of dashes."""
        length = math.dist(begin, end)
        for at in np.arange(0.0, length, 7.0):
            a, b = at / length, min(at + 4.0, length) / length
            self.line([_between(begin, end, a), _between(begin, end, b)], colour, width)

    def area(
        self, xs: Sequence[float], tops: Sequence[float], bottoms: Sequence[float], colour: str
    ) -> None:
        """Fill what lies between two lines over the same rising ``xs``."""
        _, columns, _ = self._pixels.shape
        first = max(0, math.ceil(xs[0] * _SCALE))
        last = min(columns, math.floor(xs[-1] * _SCALE) + 1)
        if first >= last:
            return
        at = np.arange(first, last) / _SCALE
        top, bottom = np.interp(at, xs, tops) * _SCALE, np.interp(at, xs, bottoms) * _SCALE
        rows = np.arange(self._pixels.shape[0])[:, None]
        # Of a pixel at the edge as much as the area covers.
        cover = np.clip(np.minimum(bottom, rows + 1) - np.maximum(top, rows), 0, 1)
        box = (first, last, 0, self._pixels.shape[0])
        self._blend(box, cover.astype(np.float32), colour)

    def text(
        self,
        at: Point,
        text: str,
        size: float,
        colour: str,
        *,
        anchor: float = 0,
        weight: float = 1,
    ) -> None:
        """Write a text on a base line.

        Parameters
        ----------
        at
            Where it stands; ``anchor`` of its width lies to the left.
        text, size, colour
            What, in which size (units of the view box) and colour.
        anchor
            0 = to the right of ``at``, 0.5 = in the middle, 1 = to the left.
        weight
            Of the strokes; 1 = as usual.
        """
        step = letters.unit(size)
        x, y = at[0] - anchor * letters.width(text, size), at[1] + step * letters.BASE
        for letter in text:
            for stroke in letters.strokes(letter):
                points = [(x + step * px, y - step * py) for px, py in stroke]
                self.line(points, colour, size * _STROKE * weight)
            x += step * letters.advance(letter)

    def _box(self, points: Sequence[Point], width: float) -> tuple[int, int, int, int]:
        """Return the columns and rows of pixels that a line can touch: left, right, top, bottom."""
        rows, columns, _ = self._pixels.shape
        xs, ys = [x * _SCALE for x, _ in points], [y * _SCALE for _, y in points]
        pad = width * _SCALE / 2 + 1
        return (
            max(0, math.floor(min(xs) - pad)),
            min(columns, math.ceil(max(xs) + pad)),
            max(0, math.floor(min(ys) - pad)),
            min(rows, math.ceil(max(ys) + pad)),
        )

    def _blend(
        self, box: tuple[int, int, int, int], cover: NDArray[np.float32], colour: str
    ) -> None:
        left, right, top, bottom = box
        part = self._pixels[top:bottom, left:right]
        part += cover[:, :, None] * (_rgb(colour) - part)


def _near(
    begin: Point, end: Point, width: float, box: tuple[int, int, int, int]
) -> NDArray[np.float32]:
    """Return how much of each pixel a straight line covers, by the distance of its middle."""
    left, right, top, bottom = box
    x = (np.arange(left, right, dtype=np.float32) + 0.5)[None, :] - begin[0] * _SCALE
    y = (np.arange(top, bottom, dtype=np.float32) + 0.5)[:, None] - begin[1] * _SCALE
    dx, dy = (end[0] - begin[0]) * _SCALE, (end[1] - begin[1]) * _SCALE
    squared = dx * dx + dy * dy
    along = np.clip((x * dx + y * dy) / squared, 0, 1) if squared else np.float32(0)
    distance = np.hypot(x - along * dx, y - along * dy)
    cover: NDArray[np.float32] = np.clip(width * _SCALE / 2 + 0.5 - distance, 0, 1)
    return cover


def _between(begin: Point, end: Point, share: float) -> Point:
    return begin[0] + share * (end[0] - begin[0]), begin[1] + share * (end[1] - begin[1])


def _rgb(colour: str) -> NDArray[np.float32]:
    digits = colour.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    return np.array([int(digits[place : place + 2], 16) for place in (0, 2, 4)], np.float32)
