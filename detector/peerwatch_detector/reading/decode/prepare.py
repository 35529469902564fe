"""Compiles the decoders, or loads what was compiled before, while no server waits."""

from __future__ import annotations

import logging
from functools import cache

import numpy as np

from peerwatch_detector import compiled
from peerwatch_detector.reading.decode.export_lines import decode_lines
from peerwatch_detector.reading.decode.frames import decode_frames
from peerwatch_detector.reading.decode.grid_writer import (
    PADDING,
    close_rows,
    new_grid_writer,
    rates,
)
from peerwatch_detector.reading.decode.matrix import decode_matrix
from peerwatch_detector.reading.selection import Grid

logger = logging.getLogger(__name__)


def prepare() -> bool:
    """Make the decoders ready, once; do without them while another thread does so, or none is to.

    Without a cache of compiled code this takes some seconds, which must not be taken from the time
    that a response has.

    Returns
    -------
    bool
        Whether there are compiled decoders; without, responses are read by ``uncompiled``.
    """
    return not (compiled.deferred() or compiled.preparing()) and _prepared()


@cache
def _prepared() -> bool:
    compiled.load()
    reason = compiled.failure()
    if reason is None:
        try:
            _call_all()
        except Exception as error:
            reason = f"numba cannot compile: {error!r}"
    if reason:
        logger.warning("slow_reading reason=%s apis=query,query_range", reason)
    return reason is None


def _call_all() -> None:
    """Call every compiled function on nothing."""
    grid = Grid(0, 1000)
    writer = new_grid_writer(grid, 0, counter=False, labels=("node", "gpu"), rows=1)
    text = np.zeros(PADDING, np.uint8)
    decode_frames(writer, text, 0, 0, 1)
    decode_matrix(writer, text, 0, 0)
    decode_lines(writer, text, 0, 0)
    close_rows(writer)
    rates(writer.values[:0], 1, 1.0, 1)
