"""Takes apart the matrix of a query's response, from bytes to the grid.

The format is that of "HTTP API", section "Range vectors", of the Prometheus documentation: a list
of objects with ``metric``, the labels, and ``values``, a list of ``[seconds, "value"]``. Series of
native histograms have ``histograms`` instead.
"""

# ruff: noqa: PLR0911, PLR0912 - a format is one flat function: calls take longer than the work
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled, whole
from peerwatch_detector.reading.decode.decimals import read_decimal, read_milliseconds, to_float
from peerwatch_detector.reading.decode.frames import equal
from peerwatch_detector.reading.decode.grid_writer import (
    BATCH,
    LABEL_BYTES,
    ROWS,
    SAMPLES,
    GridWriter,
    open_row,
    write_samples,
)
from peerwatch_detector.reading.decode.json_text import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    MINUS,
    OPEN_LIST,
    OPEN_OBJECT,
    POINT,
    QUOTE,
    blanks,
    labels,
    sign,
    string,
    value,
)
from peerwatch_detector.reading.decode.status import (
    BAD_TEXT,
    FINISHED,
    HISTOGRAM,
    MORE_BYTES,
    MORE_ROOM,
)

Bytes = NDArray[np.uint8]

_METRIC = np.frombuffer(b"metric", np.uint8)
_VALUES = np.frombuffer(b"values", np.uint8)
_HISTOGRAMS = np.frombuffer(b"histograms", np.uint8)
_U = np.uint64
_1 = _U(1)
# What _decode_series says beside a place: below every ``-1 - place``.
_FULL, _HAS_HISTOGRAM = -(1 << 60), -(1 << 60) - 1


@compiled
def decode_matrix(writer: GridWriter, text: Bytes, begin: int, end: int) -> tuple[int, int]:
    """Decode all whole series of a list, from behind its bracket to behind the closing one.

    Parameters
    ----------
    text, begin, end
        What has come; ``json_text.PADDING`` zeros must follow.

    Returns
    -------
    tuple[int, int]
        A status, and the place of the first series that was not taken.
    """
    spans = np.empty(6, np.int64)
    while True:
        at = blanks(text, begin)
        if text[at] == CLOSE_LIST:
            return FINISHED, at + 1
        if text[at] == COMMA:
            at = blanks(text, at + 1)
        rows, label_bytes = writer.counts[ROWS], writer.counts[LABEL_BYTES]
        samples = writer.counts[SAMPLES]
        stop = _decode_series(writer, text, at, spans)
        if stop >= 0:
            begin = stop
            continue
        # Taken again as a whole; a row that went on drops what it has already.
        if writer.counts[ROWS] > rows:
            writer.counts[ROWS], writer.counts[LABEL_BYTES] = rows, label_bytes
            writer.counts[SAMPLES] = samples
        if stop == _FULL:
            return MORE_ROOM, begin
        if stop == _HAS_HISTOGRAM:
            return HISTOGRAM, begin
        return (MORE_BYTES, begin) if -1 - stop >= end else (BAD_TEXT, -1 - stop)


@compiled
def _decode_series(writer: GridWriter, text: Bytes, at: int, spans: NDArray[np.int64]) -> int:
    """Decode one series; the labels must come before the values, as all servers send them."""
    if text[at] != OPEN_OBJECT:
        return -1 - at
    row = -1
    at = blanks(text, at + 1)
    while text[at] != CLOSE_OBJECT:
        name = at + 1
        at = string(text, at)
        if at < 0:
            return at
        name_end = at - 1
        at = sign(text, at, COLON)
        if at < 0:
            return at
        if equal(text, name, name_end, _METRIC) and row < 0:
            at = labels(writer, text, at, spans)
            if at < 0:
                return at
            row = open_row(writer, text, spans)
            if row < 0:
                return _FULL
        elif equal(text, name, name_end, _VALUES):
            if row < 0:
                return -1 - at
            at = _decode_values(writer, row, text, at)
        elif equal(text, name, name_end, _HISTOGRAMS):
            return _HAS_HISTOGRAM
        else:
            at = value(text, at)
        if at < 0:
            return at
        at = blanks(text, at)
        if text[at] == COMMA:
            at = blanks(text, at + 1)
        elif text[at] != CLOSE_OBJECT:
            return -1 - at
    return at + 1 if row >= 0 else -1 - at


@compiled
def _decode_values(writer: GridWriter, row: int, text: Bytes, at: int) -> int:
    """Decode a list of pairs."""
    if text[at] != OPEN_LIST:
        return -1 - at
    at = blanks(text, at + 1)
    times, numbers, found = writer.times, writer.numbers, 0
    while text[at] != CLOSE_LIST:
        # A pair as Go writes it, ``[1700000000.123,"12.5"]``, is read here: a call with an array
        # takes longer than what it does. Whatever looks different goes to _read_pair.
        # Places are unsigned here: of signed ones it is asked at every use whether they count from
        # the end.
        start = _U(at)
        place, time, scale = start + _1, 0, 1000
        while 48 <= text[place] <= 57:
            time = time * 10 + (text[place] - 48)
            place += _1
        plain = text[start] == OPEN_LIST and start + _1 < place < start + _U(15)
        if text[place] == POINT:
            place += _1
            while 48 <= text[place] <= 57 and scale > 1:
                time = time * 10 + (text[place] - 48)
                scale //= 10
                place += _1
        plain &= text[place] == COMMA and text[place + _1] == QUOTE
        place += _U(2)
        negative = text[place] == MINUS
        if negative:
            place += _1
        begin, digits, power = place, _U(0), 0
        while 48 <= text[place] <= 57:
            digits = digits * _U(10) + _U(text[place] - 48)
            place += _1
        plain &= place > begin
        if text[place] == POINT:
            place += _1
            point = place
            while 48 <= text[place] <= 57:
                digits = digits * _U(10) + _U(text[place] - 48)
                place += _1
            power = -whole(place - point)
        plain &= text[place] == QUOTE and text[place + _1] == CLOSE_LIST
        # With a point, 19 digits: a number that surely fits into 64 bits.
        if plain and place - begin < _U(20):
            number = to_float(digits, power)
            times[found], numbers[found] = time * scale, -number if negative else number
            at = whole(place + _U(2))
        else:
            time, number, at = _read_pair(text, at)
            if at < 0:
                return at
            times[found], numbers[found] = time, number
        found += 1
        if found == BATCH:
            write_samples(writer, row, found)
            found = 0
        if text[at] == COMMA and text[at + 1] == OPEN_LIST:
            at += 1
        else:
            at = _next_pair(text, at)
            if at < 0:
                return at
    write_samples(writer, row, found)
    return at + 1


@compiled
def _read_pair(text: Bytes, at: int) -> tuple[int, float, int]:
    """Read a pair with blanks, exponents, NaN and infinities; the last result is the place."""
    if text[at] != OPEN_LIST:
        return 0, 0.0, -1 - at
    time, at = read_milliseconds(text, blanks(text, at + 1))
    if at < 0:
        return 0, 0.0, at
    at = sign(text, at, COMMA)
    if at < 0:
        return 0, 0.0, at
    if text[at] != QUOTE:
        return 0, 0.0, -1 - at
    number, at = read_decimal(text, at + 1)
    if at < 0:
        return 0, 0.0, at
    if text[at] != QUOTE:
        return 0, 0.0, -1 - at
    at = blanks(text, at + 1)
    if text[at] != CLOSE_LIST:
        return 0, 0.0, -1 - at
    return time, number, at + 1


@compiled
def _next_pair(text: Bytes, at: int) -> int:
    """Go from behind a pair to the next one, or to the end of the list."""
    at = blanks(text, at)
    if text[at] == COMMA:
        at = blanks(text, at + 1)
        return at if text[at] == OPEN_LIST else -1 - at
    return at if text[at] == CLOSE_LIST else -1 - at
