"""Compiles the decoders, or loads what was compiled before, while no server waits."""

from __future__ import annotations

from functools import cache

import numpy as np

from peerwatch_detector.reading.arrival import close_rows, new_arrival, rates
from peerwatch_detector.reading.body import join_chunks
from peerwatch_detector.reading.export_lines import take_lines
from peerwatch_detector.reading.frames import take_frames
from peerwatch_detector.reading.matrix import take_matrix
from peerwatch_detector.reading.selection import Grid
from peerwatch_detector.reading.stream import PADDING


@cache
def prepare() -> None:
    """Call every compiled function once, on nothing.

    Without a cache of compiled code this takes some seconds, which must not be taken from the time
    that an answer has.
    """
    grid = Grid(0, 1000)
    arrival = new_arrival(grid, 0, counter=False, labels=("node", "gpu"), rows=1)
    text = np.zeros(PADDING, np.uint8)
    join_chunks(text, 0, text, np.zeros(2, np.int64))
    take_frames(arrival, text, 0, 0, 1)
    take_matrix(arrival, text, 0, 0)
    take_lines(arrival, text, 0, 0)
    close_rows(arrival)
    rates(arrival.values[:0], 1, 1.0, 1)
