"""Pieces of JSON that both text formats share: blanks, strings, label sets, values to skip.

All readers return the place behind what they read, or ``-1 - place`` of the byte that does not fit.
Behind the text stand zeros, which fit nowhere, so nothing is read beyond its end.
"""

# ruff: noqa: PLR0911 - a format is one flat function: calls take longer than the work
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled
from peerwatch_detector.reading.decode.frames import equal
from peerwatch_detector.reading.decode.grid_writer import GPU, LABELS, NODE, ROWS, GridWriter

Bytes = NDArray[np.uint8]

# Bytes of ASCII.
QUOTE, COMMA, COLON, BACKSLASH = 34, 44, 58, 92
MINUS, POINT = 45, 46
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125
# Zeros that must stand behind the text: more than any reader looks ahead, and they end every token.
PADDING = 48


@compiled
def blanks(text: Bytes, at: int) -> int:
    """Pass over blanks."""
    while text[at] == 32 or 9 <= text[at] <= 13:
        at += 1
    return at


@compiled
def sign(text: Bytes, at: int, byte: int) -> int:
    """Pass over one character with blanks around it."""
    at = blanks(text, at)
    if text[at] != byte:
        return -1 - at
    return blanks(text, at + 1)


@compiled
def string(text: Bytes, at: int) -> int:
    """Pass over a string that begins at its opening quote."""
    if text[at] != QUOTE:
        return -1 - at
    at += 1
    while text[at] != QUOTE:
        if text[at] < 32:
            return -1 - at
        at += 2 if text[at] == BACKSLASH and text[at + 1] >= 32 else 1
    return at + 1


@compiled
def value(text: Bytes, at: int) -> int:
    """Pass over any value."""
    depth = 0
    while True:
        byte = text[at]
        if byte == QUOTE:
            at = string(text, at)
            if at < 0:
                return at
        elif byte in (OPEN_LIST, OPEN_OBJECT):
            depth += 1
            at += 1
        elif byte in (CLOSE_LIST, CLOSE_OBJECT):
            if depth == 0:
                return -1 - at
            depth -= 1
            at += 1
        elif byte < 32 and not 9 <= byte <= 13:
            return -1 - at
        else:
            at += 1
        if depth == 0 and (text[at] == COMMA or text[at] == CLOSE_LIST or text[at] == CLOSE_OBJECT):
            return at


@compiled
def labels(writer: GridWriter, text: Bytes, at: int, spans: NDArray[np.int64]) -> int:
    """Read an object of label names and values, and note where node and GPU lie."""
    after = _labels_like_last(writer, text, at, spans)
    if after >= 0:
        return after
    spans[:] = -1
    spans[LABELS] = at
    if text[at] != OPEN_OBJECT:
        return -1 - at
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
        begin = at + 1
        at = string(text, at)
        if at < 0:
            return at
        if equal(text, name, name_end, writer.node_label):
            spans[NODE], spans[NODE + 1] = begin, at - 1
        elif equal(text, name, name_end, writer.gpu_label):
            spans[GPU], spans[GPU + 1] = begin, at - 1
        at = blanks(text, at)
        if text[at] == COMMA:
            at = blanks(text, at + 1)
            if text[at] == CLOSE_OBJECT:
                return -1 - at
        elif text[at] != CLOSE_OBJECT:
            return -1 - at
    spans[LABELS + 1] = at + 1
    return at + 1


@compiled
def _labels_like_last(writer: GridWriter, text: Bytes, at: int, spans: NDArray[np.int64]) -> int:
    """Read labels as long as those of the row before that differ in node and GPU, or return -1.

    Nearly all do, and to see it takes a tenth of taking them apart.
    """
    row = writer.counts[ROWS] - 1
    if row < 0:
        return -1
    known, last = writer.labels, writer.spans[row]
    begin: int = last[LABELS]
    length: int = last[LABELS + 1] - begin
    if at + length > len(text):
        return -1
    here, there = text[at : at + length], known[begin : begin + length]
    different = 0
    for k in range(length):
        different += here[k] != there[k]
    for name in (NODE, GPU):
        # Where there is none, both are -1.
        for k in range(last[name], last[name + 1]):
            byte = text[at + k - begin]
            if byte < 32 or byte in (QUOTE, BACKSLASH):
                return -1
            different -= byte != known[k]
    if different:
        return -1
    for k in range(len(spans)):
        spans[k] = last[k] - begin + at if last[k] >= 0 else -1
    return at + length
