"""Brings bytes through a decoder, in one go or piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.reading.decode.block import Block
from peerwatch_detector.reading.decode.grid_writer import (
    LABEL_BYTES,
    ROWS,
    SAMPLES,
    GridWriter,
    close_rows,
    new_grid_writer,
    with_capacity,
)
from peerwatch_detector.reading.decode.layout import layout_of
from peerwatch_detector.reading.decode.status import MORE_BYTES, MORE_ROOM
from peerwatch_detector.reading.selection import Grid

Decoder = Callable[[GridWriter, NDArray[np.uint8], int, int], tuple[int, int]]


def padded(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data + bytes(64), np.uint8).copy()


def empty(grid: Grid, age: int = 5000, *, counter: bool = False, rows: int = 1) -> GridWriter:
    return new_grid_writer(grid, age, counter=counter, labels=("node", "gpu"), rows=rows)


def take(
    decoder: Decoder, writer: GridWriter, data: bytes, cuts: tuple[int, ...] = ()
) -> tuple[GridWriter, int, int]:
    """Give a decoder the data up to each cut in turn, then all of it."""
    begin, status = 0, MORE_BYTES
    for end in (*sorted(cuts), len(data)):
        while True:
            status, begin = decoder(writer, padded(data[:end]), begin, end)
            if status != MORE_ROOM:
                break
            more = int(writer.counts[LABEL_BYTES]) + len(data)
            writer = with_capacity(writer, 2 * len(writer.cursor), more)
        if status != MORE_BYTES:
            break
    return writer, status, begin


def block(writer: GridWriter, grid: Grid, *, escaped: bool = True) -> Block:
    close_rows(writer)
    layout = layout_of(writer, escaped=escaped)
    values = layout.fold(writer.values[: writer.counts[ROWS]])
    samples = int(writer.counts[SAMPLES])
    return Block(grid, layout.keys, values, samples, layout.duplicates, layout.unnamed)
