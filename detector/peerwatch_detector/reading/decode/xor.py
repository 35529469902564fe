"""Decodes XOR chunks, Prometheus' format of float samples, straight into the time grid.

The layout is that of ``tsdb/docs/format/chunks.md`` and ``tsdb/chunkenc/xor.go`` in
prometheus/prometheus, after T. Pelkonen and others, "Gorilla: a fast, scalable, in-memory time
series database", 2015. Two bytes count the samples. The first sample is a signed varint of
milliseconds and a float64; the second a varint of the difference and the value's bits; from then on
times are differences of differences in 1, 16, 20, 24 or 68 bits, and values are XORed with the one
before: 1 bit when equal, else the bits that differ, within the former borders or within new ones.
"""

# ruff: noqa: PLR0911 - a format is one flat function: calls take longer than the work
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import as_float, compiled, inlined, whole
from peerwatch_detector.reading.decode.grid_writer import GridWriter, write_samples

Bytes = NDArray[np.uint8]

# Bytes that must exist behind a chunk: a sample may be read to its end before it is found short.
# The longest has 68 bits of time and 77 of value, 19 bytes.
PADDING = 48
# The value that marks a series as ended (model/value/value.go), told from other NaN by its bits.
_STALE = np.uint64(0x7FF0000000000002)
_U = np.uint64


@compiled
def decode_chunk(
    writer: GridWriter, row: int, data: Bytes, begin: int, end: int, earliest: int, latest: int
) -> int:
    """Put the samples of a chunk into a row.

    Parameters
    ----------
    data, begin, end
        Where the chunk lies; at least ``PADDING`` bytes must follow.
    earliest, latest
        The times in ms that the chunk says it spans.

    Returns
    -------
    int
        How many samples it had, or -1 if its bits contradict its count or its times.
    """
    if end - begin < 2:
        return -1
    count = (whole(data[begin]) << 8) | whole(data[begin + 1])
    at, bits, time, delta = begin + 2, _U(0), 0, 0
    leading, trailing = 0, 0
    place = 0  # in bits, from the second sample's value on
    times, numbers, found = writer.times, writer.numbers, 0
    for index in range(count):
        if index == 0:
            raw, at = read_varint(data, at, end)
            if at < 0 or at + 8 > end:
                return -1
            time = whole(raw >> _U(1)) ^ -whole(raw & _U(1))
            bits = _word(data, at * 8)
            place = (at + 8) * 8
        else:
            if index == 1:
                raw, at = read_varint(data, at + 8, end)
                if at < 0:
                    return -1
                delta = whole(raw)
                place = at * 8
            else:
                change, place = _read_change(data, place)
                delta += change
            if delta <= 0:
                return -1
            time += delta
            difference, place, leading, trailing = _read_difference(data, place, leading, trailing)
            if place < 0 or place > end * 8:
                return -1
            bits ^= difference
        if not earliest <= time <= latest:
            return -1
        if bits != _STALE:
            times[found], numbers[found] = time, as_float(bits)
            found += 1
    write_samples(writer, row, found)
    return count


@compiled
def read_varint(data: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """Read an unsigned varint; the place behind it is -1 if it is cut off or too long."""
    value, shift = _U(0), 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= _U(byte & 0x7F) << _U(shift)
        if byte < 0x80:
            return value, at
        shift += 7
    return _U(0), -1


@inlined
def _word(data: Bytes, place: int) -> np.uint64:
    """Return the 64 bits from a place on, counted in bits."""
    at, shift = place >> 3, _U(place & 7)
    word = (
        _U(data[at]) << _U(56)
        | _U(data[at + 1]) << _U(48)
        | _U(data[at + 2]) << _U(40)
        | _U(data[at + 3]) << _U(32)
        | _U(data[at + 4]) << _U(24)
        | _U(data[at + 5]) << _U(16)
        | _U(data[at + 6]) << _U(8)
        | _U(data[at + 7])
    )
    return word << shift | _U(data[at + 8]) >> (_U(8) - shift)


@inlined
def _read_change(data: Bytes, place: int) -> tuple[int, int]:
    """Read a difference of differences of times; the place moves behind it."""
    word = _word(data, place)
    if word >> _U(63) == 0:
        return 0, place + 1
    if word >> _U(62) == 2:
        prefix, width = 2, 14
    elif word >> _U(61) == 6:
        prefix, width = 3, 17
    elif word >> _U(60) == 14:
        prefix, width = 4, 20
    else:
        return whole(_word(data, place + 4)), place + 68
    change = whole(word << _U(prefix) >> _U(64 - width))
    if change > 1 << (width - 1):
        change -= 1 << width
    return change, place + prefix + width


@inlined
def _read_difference(
    data: Bytes, place: int, leading: int, trailing: int
) -> tuple[np.uint64, int, int, int]:
    """Read the XOR of two values; the place moves behind it, or to -1 if borders cross."""
    word = _word(data, place)
    if word >> _U(63) == 0:
        return _U(0), place + 1, leading, trailing
    if word >> _U(62) == 2:
        place += 2
    else:
        leading = whole(word >> _U(57) & _U(31))
        width = whole(word >> _U(51) & _U(63))
        trailing = 64 - leading - (64 if width == 0 else width)
        if trailing < 0:
            return _U(0), -1, 0, 0
        place += 13
    width = 64 - leading - trailing
    difference = _word(data, place) >> _U(64 - width) << _U(trailing)
    return difference, place + width, leading, trailing
