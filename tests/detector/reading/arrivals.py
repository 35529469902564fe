"""Brings bytes through a decoder, in one go or piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.reading.decode.arrival import (
    LABEL_BYTES,
    ROWS,
    SAMPLES,
    Arrival,
    close_rows,
    new_arrival,
    with_more_room,
)
from peerwatch_detector.reading.decode.block import Block
from peerwatch_detector.reading.decode.layout import layout_of
from peerwatch_detector.reading.decode.status import MORE_BYTES, MORE_ROOM
from peerwatch_detector.reading.selection import Grid

Take = Callable[[Arrival, NDArray[np.uint8], int, int], tuple[int, int]]


def padded(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data + bytes(64), np.uint8).copy()


def empty(grid: Grid, age: int = 5000, *, counter: bool = False, rows: int = 1) -> Arrival:
    return new_arrival(grid, age, counter=counter, labels=("node", "gpu"), rows=rows)


def take(
    decoder: Take, arrival: Arrival, data: bytes, cuts: tuple[int, ...] = ()
) -> tuple[Arrival, int, int]:
    """Give a decoder the data up to each cut in turn, then all of it."""
    begin, status = 0, MORE_BYTES
    for end in (*sorted(cuts), len(data)):
        while True:
            status, begin = decoder(arrival, padded(data[:end]), begin, end)
            if status != MORE_ROOM:
                break
            more = int(arrival.counts[LABEL_BYTES]) + len(data)
            arrival = with_more_room(arrival, 2 * len(arrival.cursor), more)
        if status != MORE_BYTES:
            break
    return arrival, status, begin


def block(arrival: Arrival, grid: Grid, *, escaped: bool = True) -> Block:
    close_rows(arrival)
    layout = layout_of(arrival, escaped=escaped)
    values = layout.fold(arrival.values[: arrival.counts[ROWS]])
    samples = int(arrival.counts[SAMPLES])
    return Block(grid, layout.keys, values, samples, layout.duplicates, layout.unnamed)
