"""Carries a body into a decoder: a buffer that holds what is not decoded yet, and no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.decode.grid_writer import (
    LABEL_BYTES,
    PADDING,
    GridWriter,
    with_capacity,
)
from peerwatch_detector.reading.decode.status import (
    FINISHED,
    MORE_BYTES,
    MORE_ROOM,
    UnsplittableError,
    error_of,
)
from peerwatch_detector.reading.settings import ReadingSettings
from peerwatch_detector.reading.transport.body import Body

Bytes = NDArray[np.uint8]
Decoder = Callable[[GridWriter, Bytes, int, int], tuple[int, int]]

# Bytes of the buffer to begin with: a frame of Prometheus' default size, 1 MiB.
_FIRST_SIZE = 1 << 20
# The longest frame, series or line; Prometheus' frames have 1 MiB, a series in JSON with 11,000
# samples 0.5 MB, a line of an export some hours of samples. Chosen: 64 times the frame.
LONGEST_PART = 1 << 26


class Stream:
    """What has come of a body and is not taken yet.

    Parameters
    ----------
    body
        Where it comes from.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self.data: Bytes = np.empty(_FIRST_SIZE + PADDING, np.uint8)
        self.data[:PADDING] = 0
        self.begin = self.end = 0
        self.passed = 0

    def fill(self) -> bool:
        """Get more, at the price of room if there is none; False at the body's end.

        Raises
        ------
        ReadError
            If the body breaks off, or a part of it is longer than any server sends.
        """
        room = len(self.data) - PADDING
        if self.end > room // 2 and self.begin:
            rest = self.data[self.begin : self.end].copy()
            self.data[: len(rest)] = rest
            self.begin, self.end = 0, len(rest)
        if self.end > room // 2:
            if room >= LONGEST_PART:
                self.body.close()
                raise ReadError(
                    "malformed",
                    f"{self.body.url} sent a part of {self.end} bytes without an end; is "
                    "prometheus.url the query API?",
                )
            self.data = np.concatenate([self.data, np.zeros_like(self.data[PADDING:])])
        count = self.body.read_into(self.data.data[self.end : len(self.data) - PADDING])
        self.end += count
        self.data[self.end : self.end + PADDING] = 0
        return count > 0

    def passed_to(self, place: int) -> None:
        """Say that everything before a place is taken."""
        self.passed += place - self.begin
        self.begin = place


def decode_stream(
    stream: Stream, writer: GridWriter, take: Decoder, settings: ReadingSettings
) -> tuple[GridWriter, bool]:
    """Let a decoder take parts until it says that it finished, or the body ends.

    Returns
    -------
    tuple[GridWriter, bool]
        The writer, which may have got more room, and whether the decoder finished.

    Raises
    ------
    ReadError
        If what comes is not what the decoder takes, or the limits are passed.
    """
    more = True
    while more:
        status, place = take(writer, stream.data, stream.begin, stream.end)
        if status not in {FINISHED, MORE_BYTES, MORE_ROOM}:
            stream.body.close()
            near = stream.data[place : min(place + 60, stream.end)].tobytes()
            raise error_of(status, stream.body.url, stream.passed + place - stream.begin, near)
        stream.passed_to(place)
        if status == FINISHED:
            return writer, True
        if status == MORE_ROOM:
            writer = _grown(writer, stream, settings)
            continue
        more = stream.fill()
    return writer, False


def _grown(writer: GridWriter, stream: Stream, settings: ReadingSettings) -> GridWriter:
    """Return the writer with more room for what it lacks: labels, else rows."""
    rows, used = len(writer.cursor), int(writer.counts[LABEL_BYTES])
    waiting = stream.end - stream.begin
    if len(writer.labels) - used < waiting:
        return with_capacity(writer, rows, used + 2 * waiting)
    if rows >= settings.max_series:
        stream.body.close()
        raise UnsplittableError(
            "too_large",
            f"{stream.body.url} answers with more than {settings.max_series} series; narrow the "
            "selection or raise prometheus.reading.max_series.",
        )
    return with_capacity(writer, min(2 * rows, settings.max_series), 0)
