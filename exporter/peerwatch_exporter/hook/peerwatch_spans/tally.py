"""What each thread spent in which segment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .ring import MAX_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .recorder import Recorder
    from .segments import OwnSegment


class Tally:
    """What one thread added so far, by segment, and which segments it is in.

    Attributes
    ----------
    nanoseconds, counts
        By number of the segment, without what ``own`` count themselves.
    depth
        Of nested spans of one segment only the outermost counts.
    segments
        The program's own, by name.
    own
        All there ever were.
    thread
        Whose it is.
    """

    __slots__ = ("counts", "depth", "nanoseconds", "own", "segments", "thread")

    def __init__(self) -> None:
        self.nanoseconds = [0] * MAX_SEGMENTS
        self.counts = [0] * MAX_SEGMENTS
        self.depth = [0] * MAX_SEGMENTS
        self.segments: dict[str, OwnSegment] = {}
        self.own: list[OwnSegment] = []
        self.thread = threading.current_thread()

    def totals(self) -> Iterator[tuple[int, int, int]]:
        """Yield numbers of segments, their nanoseconds and how many spans; some of them twice."""
        for number, count in enumerate(self.counts):
            if count:
                yield number, self.nanoseconds[number], count
        for own in tuple(self.own):
            yield own.number, own.nanoseconds, own.count


class LocalTally(threading.local):
    """Gives each thread its tally at first use.

    Attributes
    ----------
    tally, segments
        The tally, and its segments once more, for those who have no time for two look-ups.
    is_own
        Whether no other thread has the same tally.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.tally = recorder.join()
        self.is_own = self.tally.thread is threading.current_thread()
        self.segments = self.tally.segments if self.is_own else {}
