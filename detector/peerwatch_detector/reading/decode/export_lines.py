"""Takes apart VictoriaMetrics' export in JSON lines, from bytes to the grid.

Every line is an object with ``metric``, ``values`` and ``timestamps`` in milliseconds
(VictoriaMetrics documentation, "How to export data in JSON line format"); a value that is not
finite is null or a string. The values come before their times, so both lists are read side by side.
"""

# ruff: noqa: PLR0911, PLR0912 - a format is one flat function: calls take longer than the work
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled
from peerwatch_detector.reading.decode.decimals import read_decimal, to_float
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
from peerwatch_detector.reading.decode.status import BAD_TEXT, MORE_BYTES, MORE_ROOM

Bytes = NDArray[np.uint8]

_METRIC = np.frombuffer(b"metric", np.uint8)
_VALUES = np.frombuffer(b"values", np.uint8)
_TIMES = np.frombuffer(b"timestamps", np.uint8)
_U = np.uint64
# Instead of a place: the writer has no room. Below every ``-1 - place``.
_FULL = -(1 << 60)


@compiled
def decode_lines(writer: GridWriter, text: Bytes, begin: int, end: int) -> tuple[int, int]:
    """Decode all whole lines; arguments and result as those of ``decode_matrix``."""
    spans = np.empty(6, np.int64)
    while True:
        begin = blanks(text, begin)
        if begin >= end:
            return MORE_BYTES, begin
        rows, label_bytes = writer.counts[ROWS], writer.counts[LABEL_BYTES]
        samples = writer.counts[SAMPLES]
        stop = _decode_line(writer, text, begin, spans)
        if stop >= 0:
            begin = stop
            continue
        if writer.counts[ROWS] > rows:
            writer.counts[ROWS], writer.counts[LABEL_BYTES] = rows, label_bytes
            writer.counts[SAMPLES] = samples
        if stop == _FULL:
            return MORE_ROOM, begin
        return (MORE_BYTES, begin) if -1 - stop >= end else (BAD_TEXT, -1 - stop)


@compiled
def _decode_line(writer: GridWriter, text: Bytes, at: int, spans: NDArray[np.int64]) -> int:
    if text[at] != OPEN_OBJECT:
        return -1 - at
    values, times, has_labels = -1, -1, False
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
        if equal(text, name, name_end, _METRIC):
            at = labels(writer, text, at, spans)
            has_labels = True
        elif equal(text, name, name_end, _VALUES):
            values, at = at, _behind_list(text, at)
        elif equal(text, name, name_end, _TIMES):
            times, at = at, _behind_list(text, at)
        else:
            at = value(text, at)
        if at < 0:
            return at
        at = blanks(text, at)
        if text[at] == COMMA:
            at = blanks(text, at + 1)
        elif text[at] != CLOSE_OBJECT:
            return -1 - at
    if not has_labels or values < 0 or times < 0:
        return -1 - at
    row = open_row(writer, text, spans)
    if row < 0:
        return _FULL
    stop = _decode_pairs(writer, row, text, values, times)
    return at + 1 if stop >= 0 else stop


@compiled
def _behind_list(text: Bytes, at: int) -> int:
    """Pass over a list of numbers and strings; a nested list is found out when it is read."""
    if text[at] != OPEN_LIST:
        return -1 - at
    while text[at] != CLOSE_LIST:
        if text[at] == QUOTE:
            at = string(text, at)
            if at < 0:
                return at
        elif text[at] == 0:
            return -1 - at
        else:
            at += 1
    return at + 1


@compiled
def _decode_pairs(writer: GridWriter, row: int, text: Bytes, at: int, time_at: int) -> int:
    """Decode two lists of the same length side by side; integers of milliseconds in the second."""
    if text[at] != OPEN_LIST or text[time_at] != OPEN_LIST:
        return -1 - at
    at, time_at = blanks(text, at + 1), blanks(text, time_at + 1)
    times, numbers, found = writer.times, writer.numbers, 0
    while text[at] != CLOSE_LIST:
        # A plain number is read here, for the reason given in matrix._decode_values.
        negative = text[at] == MINUS
        place = at + negative
        begin, digits, power = place, _U(0), 0
        while 48 <= text[place] <= 57:
            digits = digits * _U(10) + _U(text[place] - 48)
            place += 1
        plain = place > begin
        if text[place] == POINT:
            place += 1
            point = place
            while 48 <= text[place] <= 57:
                digits = digits * _U(10) + _U(text[place] - 48)
                place += 1
            power = point - place
        if plain and place - begin < 20 and (text[place] == COMMA or text[place] == CLOSE_LIST):
            number = to_float(digits, power)
            number, at = -number if negative else number, place
        else:
            number, at = _read_value(text, at)
            if at < 0:
                return at
            at = blanks(text, at)
        begin, time = time_at, 0
        while 48 <= text[time_at] <= 57 and time_at - begin < 18:
            time = time * 10 + (text[time_at] - 48)
            time_at += 1
        if time_at == begin:
            return -1 - time_at
        times[found], numbers[found] = time, number
        found += 1
        if found == BATCH:
            write_samples(writer, row, found)
            found = 0
        if text[time_at] <= 32:
            time_at = blanks(text, time_at)
        if text[at] != text[time_at]:
            return -1 - at
        if text[at] == COMMA:
            at, time_at = at + 1, time_at + 1
            if text[at] <= 32 or text[time_at] <= 32:
                at, time_at = blanks(text, at), blanks(text, time_at)
        elif text[at] != CLOSE_LIST:
            return -1 - at
    write_samples(writer, row, found)
    return at + 1 if text[time_at] == CLOSE_LIST else -1 - time_at


@compiled
def _read_value(text: Bytes, at: int) -> tuple[float, int]:
    """Read a number, null for NaN, or a string such as "Infinity"."""
    if text[at] == QUOTE:
        return (np.nan if text[at + 1] == 78 else np.inf), string(text, at)  # N
    if text[at] == 110:  # null
        stop = value(text, at)
        return np.nan, stop
    return read_decimal(text, at)
