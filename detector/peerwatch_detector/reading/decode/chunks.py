"""The transfer coding of RFC 9112, section 7.1: a body in chunks.

``http.client`` would read every chunk with several calls in Python, of which a remote read has one
per series.
"""

# ruff: noqa: PLR0912 - a format is one flat function: calls take longer than the work
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled

Bytes = NDArray[np.uint8]

# What the next bytes of a chunked body are; the state's first entry. The second counts.
SIZE, _EXTENSION, _DATA, _DATA_END, _TRAILER, DONE, BROKEN = range(7)


@compiled
def join_chunks(raw: Bytes, count: int, target: Bytes, state: NDArray[np.int64]) -> int:
    """Copy what chunks carry.

    Parameters
    ----------
    raw, count
        What came.
    target
        Where it goes; as long as ``raw``.
    state
        What is expected next, and how much of it (-1 = not told yet), kept between calls; shape
        (2,).

    Returns
    -------
    int
        Bytes copied.
    """
    expected, left = state[0], state[1]
    at, out = 0, 0
    while at < count and expected < DONE:
        if expected == _DATA:
            length = min(left, count - at)
            for byte in range(length):
                target[out + byte] = raw[at + byte]
            at, out, left = at + length, out + length, left - length
            if left == 0:
                expected = _DATA_END
            continue
        byte = raw[at]
        at += 1
        if expected == SIZE:
            digit = _hex_digit(byte)
            if digit >= 0 and left < 1 << 40:
                left = max(left, 0) * 16 + digit
            elif left < 0:
                expected = BROKEN
            elif byte == 10:
                expected = _DATA if left else _TRAILER
            elif byte in (59, 32, 13):  # semicolon, blank, return
                expected = _EXTENSION
            else:
                expected = BROKEN
        elif expected == _EXTENSION:
            if byte == 10:
                expected = _DATA if left else _TRAILER
        elif expected == _DATA_END:
            if byte == 10:
                expected, left = SIZE, -1
            elif byte != 13:
                expected = BROKEN
        elif byte == 10:
            # The end of a line of the trailer; an empty one ends the body. Left counts its bytes.
            if left == 0:
                expected = DONE
            left = 0
        elif byte != 13:
            left += 1
    state[0], state[1] = expected, left
    return out


@compiled
def _hex_digit(byte: int) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return -1
