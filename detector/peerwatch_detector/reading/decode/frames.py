"""Takes apart the frames of a streamed remote read and puts their chunks into the grid.

A frame is a varint of the message's length, its CRC-32C in four bytes with the highest first, and a
``ChunkedReadResponse`` (``storage/remote/chunked.go`` and ``prompb/remote.proto`` in
prometheus/prometheus). Every series stands with all its labels before its chunks; one that does not
fit into a frame goes on in the next with the same labels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled, whole
from peerwatch_detector.reading.decode.checksum import crc32c
from peerwatch_detector.reading.decode.grid_writer import (
    GPU,
    LABEL_BYTES,
    LABELS,
    NODE,
    ROWS,
    SAMPLES,
    GridWriter,
    open_row,
)
from peerwatch_detector.reading.decode.status import (
    BAD_CHECKSUM,
    BAD_CHUNK,
    BAD_FRAME,
    HISTOGRAM,
    MORE_BYTES,
    MORE_ROOM,
    OTHER_CHUNK,
    TOO_LONG,
)
from peerwatch_detector.reading.decode.xor import decode_chunk, read_varint

Bytes = NDArray[np.uint8]

# Of Chunk.Encoding in prompb/types.proto: XOR, and HISTOGRAM, FLOAT_HISTOGRAM, HISTOGRAM_ST and
# FLOAT_HISTOGRAM_ST; 4 is XOR2, floats in bits of another order.
_XOR = 1
_HISTOGRAMS = (2, 3, 5, 6)
# Wire types of protobuf.
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5


@compiled
def decode_frames(
    writer: GridWriter, data: Bytes, begin: int, end: int, longest: int
) -> tuple[int, int]:
    """Decode all whole frames.

    Parameters
    ----------
    data, begin, end
        What has come; ``xor.PADDING`` bytes must follow.
    longest
        Most bytes of one frame.

    Returns
    -------
    tuple[int, int]
        A status, and the place of the first frame that was not taken.
    """
    while begin < end:
        length, at = read_varint(data, begin, end)
        if at < 0:
            return (MORE_BYTES if end - begin < 10 else BAD_FRAME), begin
        if length > np.uint64(longest):
            return TOO_LONG, begin
        stop = at + 4 + whole(length)
        if stop > end:
            return MORE_BYTES, begin
        expected = (
            whole(data[at]) << 24
            | whole(data[at + 1]) << 16
            | whole(data[at + 2]) << 8
            | whole(data[at + 3])
        )
        if crc32c(data, at + 4, stop) != expected:
            return BAD_CHECKSUM, begin
        rows, label_bytes = writer.counts[ROWS], writer.counts[LABEL_BYTES]
        samples = writer.counts[SAMPLES]
        status = _decode_message(writer, data, at + 4, stop)
        if status != 0:
            if status == MORE_ROOM:
                # Taken again as a whole; a row that went on drops what it has already.
                writer.counts[ROWS], writer.counts[LABEL_BYTES] = rows, label_bytes
                writer.counts[SAMPLES] = samples
            return status, begin
        begin = stop
    return MORE_BYTES, begin


@compiled
def _field(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Read a field: its number, its kind, and begin and end of its value; number -1 if broken."""
    tag, at = read_varint(data, at, end)
    if at < 0:
        return -1, 0, 0, 0
    number, kind = whole(tag >> np.uint64(3)), whole(tag & np.uint64(7))
    if kind == _VARINT:
        _, stop = read_varint(data, at, end)
    elif kind == _LENGTH:
        length, at = read_varint(data, at, end)
        stop = -1 if at < 0 or length > np.uint64(end - at) else at + whole(length)
    elif kind == _FIXED_64:
        stop = at + 8
    elif kind == _FIXED_32:
        stop = at + 4
    else:
        stop = -1
    if stop < 0 or stop > end:
        return -1, 0, 0, 0
    return number, kind, at, stop


@compiled
def _decode_message(writer: GridWriter, data: Bytes, at: int, end: int) -> int:
    while at < end:
        number, kind, begin, stop = _field(data, at, end)
        if number < 0:
            return BAD_FRAME
        if number == 1 and kind == _LENGTH:
            status = _decode_series(writer, data, begin, stop)
            if status != 0:
                return status
        at = stop
    return 0


@compiled
def _decode_series(writer: GridWriter, data: Bytes, at: int, end: int) -> int:
    spans = np.full(6, -1, np.int64)
    spans[LABELS] = at
    row = -1
    while at < end:
        number, kind, begin, stop = _field(data, at, end)
        if number < 0:
            return BAD_FRAME
        if number == 1 and kind == _LENGTH:
            if row >= 0 or not _decode_label(writer, data, begin, stop, spans):
                return BAD_FRAME
        elif number == 2 and kind == _LENGTH:
            if row < 0:
                spans[LABELS + 1] = at
                row = open_row(writer, data, spans)
                if row < 0:
                    return MORE_ROOM
            status = _decode_chunk_message(writer, row, data, begin, stop)
            if status != 0:
                return status
        at = stop
    return 0


@compiled
def _decode_label(
    writer: GridWriter, data: Bytes, at: int, end: int, spans: NDArray[np.int64]
) -> bool:
    """Note where the value lies if the label is that of the node or the GPU."""
    which, value_begin, value_end = -1, at, at
    while at < end:
        number, kind, begin, stop = _field(data, at, end)
        if number < 0 or kind != _LENGTH:
            return False
        if number == 1:
            if equal(data, begin, stop, writer.node_label):
                which = NODE
            elif equal(data, begin, stop, writer.gpu_label):
                which = GPU
        elif number == 2:
            value_begin, value_end = begin, stop
        at = stop
    if which >= 0:
        spans[which], spans[which + 1] = value_begin, value_end
    return True


@compiled
def equal(data: Bytes, begin: int, end: int, word: Bytes) -> bool:
    """Tell whether a stretch of bytes is a word."""
    if end - begin != len(word):
        return False
    for k in range(len(word)):  # noqa: SIM110 - generators cannot be compiled
        if data[begin + k] != word[k]:
            return False
    return True


@compiled
def _decode_chunk_message(writer: GridWriter, row: int, data: Bytes, at: int, end: int) -> int:
    earliest, latest, encoding, content_begin, content_end = 0, 0, 0, 0, 0
    while at < end:
        number, kind, begin, stop = _field(data, at, end)
        if number < 0:
            return BAD_FRAME
        if kind == _VARINT:
            value, _ = read_varint(data, begin, stop)
            if number == 1:
                earliest = whole(value)
            elif number == 2:
                latest = whole(value)
            elif number == 3:
                encoding = whole(value)
        elif number == 4 and kind == _LENGTH:
            content_begin, content_end = begin, stop
        at = stop
    if encoding != _XOR:
        return HISTOGRAM if encoding in _HISTOGRAMS else OTHER_CHUNK
    if decode_chunk(writer, row, data, content_begin, content_end, earliest, latest) < 0:
        return BAD_CHUNK
    return 0
