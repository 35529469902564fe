"""Compiles the decoders, or loads what was compiled before, while no server waits."""

from __future__ import annotations

import logging
from functools import cache

import numpy as np

from peerwatch_detector import compiled
from peerwatch_detector.reading.decode.arrival import PADDING, close_rows, new_arrival, rates
from peerwatch_detector.reading.decode.chunks import join_chunks
from peerwatch_detector.reading.decode.export_lines import take_lines
from peerwatch_detector.reading.decode.frames import take_frames
from peerwatch_detector.reading.decode.matrix import take_matrix
from peerwatch_detector.reading.selection import Grid

logger = logging.getLogger(__name__)


@cache
def prepare() -> bool:
    """Make the decoders ready, once.

    Without a cache of compiled code this takes some seconds, which must not be taken from the time
    that an answer has.

    Returns
    -------
    bool
        Whether there are compiled decoders; without, answers are read by ``plain``.
    """
    reason = compiled.MISSING
    if reason is None:
        try:
            _call_all()
        except Exception as error:
            reason = f"numba cannot compile: {error!r}"
    if reason:
        logger.warning("slow_reading reason=%s ways=query,query_range", reason)
    return reason is None


def _call_all() -> None:
    """Call every compiled function on nothing."""
    grid = Grid(0, 1000)
    arrival = new_arrival(grid, 0, counter=False, labels=("node", "gpu"), rows=1)
    text = np.zeros(PADDING, np.uint8)
    join_chunks(text, 0, text, np.zeros(2, np.int64))
    take_frames(arrival, text, 0, 0, 1)
    take_matrix(arrival, text, 0, 0)
    take_lines(arrival, text, 0, 0)
    close_rows(arrival)
    rates(arrival.values[:0], 1, 1.0, 1)
