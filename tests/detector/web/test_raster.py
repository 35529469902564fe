"""Pictures as PNG: the file, strokes of letters, lines and areas, the picture of a metric."""

from __future__ import annotations

import math
import string
import struct
import zlib

import numpy as np
import pytest
from numpy.typing import NDArray

from detector.web.test_deviation import curve
from detector.web.test_web import START
from each_case import each_case
from peerwatch_detector.web.deviation_png import deviation_png
from peerwatch_detector.web.raster import letters
from peerwatch_detector.web.raster.canvas import Canvas
from peerwatch_detector.web.raster.png import png

RED = np.array([0xC6, 0x28, 0x28])


def read(file: bytes) -> NDArray[np.uint8]:
    """Return the pixels of a PNG of ours, by the standard: every chunk with its check."""
    assert b"\x89PNG\r\n\x1a\n" == file[:8]
    place, body, width, height = 8, b"", 0, 0
    while place < len(file):
        (length,) = struct.unpack(">I", file[place : place + 4])
        kind, data = file[place + 4 : place + 8], file[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", file[place + 8 + length : place + 12 + length])
        assert zlib.crc32(kind + data) == check
        if kind == b"IHDR":
            width, height, *rest = struct.unpack(">IIBBBBB", data)
            assert [8, 2, 0, 0, 0] == rest
        body += data if kind == b"IDAT" else b""
        place += 12 + length
    assert b"IEND" == kind
    lines = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def test_a_file_has_the_pixels_that_were_written() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (7, 5, 3)).astype(np.uint8)

    assert np.array_equal(pixels, read(png(pixels)))


def test_a_line_is_where_it_was_drawn_and_its_edge_is_soft() -> None:
    canvas = Canvas(20, 10, "#ffffff")
    canvas.line([(2, 5), (18, 5)], "#000", 2)
    column = canvas.finished()[:, 20, 0]

    # Two pixels for a unit: rows 8 to 11 are the line, 2 units wide.
    assert [0, 0, 0, 0] == column[8:12].tolist()
    assert (255 == column[:7]).all()
    assert (255 == column[13:]).all()


def test_an_area_lies_between_its_lines_and_outside_of_the_box_nothing_is_drawn() -> None:
    canvas = Canvas(10, 10, "#ffffff")
    canvas.area([2, 8], [2, 4], [8, 8], "#000000")
    canvas.line([(-50, -50), (-20, -40)], "#000000", 2)
    drawn = canvas.finished()[:, :, 0] == 0

    assert drawn[10, 10]
    assert not drawn[3, 10]
    assert not drawn[:, :4].any()
    assert not drawn[17:].any()


@each_case("letter", [*string.ascii_letters, *string.digits, *".,:-_/%()·"])
def test_every_letter_has_strokes_of_its_own(letter: str) -> None:
    strokes = letters.strokes(letter)

    assert strokes
    assert letters.strokes("\N{SNOWMAN}") != strokes
    assert all(0 <= y <= 8 and 0 <= x <= 5 for stroke in strokes for x, y in stroke)
    others = set(string.ascii_letters + string.digits) - {letter}
    assert strokes not in [letters.strokes(other) for other in others]


def test_a_text_is_as_wide_as_it_is_said_to_be() -> None:
    canvas = Canvas(200, 30, "#ffffff")
    canvas.text((150, 20), "12.5 GB/s", 11, "#000000", anchor=1)
    columns = np.flatnonzero((canvas.finished() < 128).any(axis=(0, 2))) / 2

    assert 150 == pytest.approx(columns[-1], abs=1.5)
    assert letters.width("12.5 GB/s", 11) == pytest.approx(columns[-1] - columns[0], abs=3)


def reds(file: bytes) -> NDArray[np.int64]:
    """Return rows and columns that are red, shape (2, n)."""
    return np.array(np.nonzero((read(file) == RED).all(axis=2)))


def test_the_node_is_red_and_falls_where_its_values_fall() -> None:
    file = deviation_png(curve([100.0] * 10 + [40.0] * 10), None)
    rows, columns = reds(file)

    assert (608, 1520) == read(file).shape[:2]
    before, after = rows[columns < 700], rows[columns > 900]
    assert before.max() < after.min()
    assert len(file) < 100_000


@pytest.mark.parametrize(
    "values", [[math.nan] * 6, [1.0, math.nan, 1.0], [0.0] * 5, [1e15, -1e15, math.nan, 3.0]]
)
def test_what_is_missing_or_odd_is_drawn(values: list[float]) -> None:
    assert (608, 1520) == read(deviation_png(curve(values), START)).shape[:2]


def test_a_healthy_node_is_not_red() -> None:
    assert 0 == reds(deviation_png(curve([100.0] * 20), None, flagged=False)).size
