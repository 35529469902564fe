"""What each thread spent in which segment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .ring import MAX_SEGMENTS

if TYPE_CHECKING:
    from .recorder import Recorder


class Tally:
    """What one thread added so far, by segment, and which segments it is in."""

    __slots__ = ("counts", "depth", "nanoseconds", "thread")

    def __init__(self) -> None:
        self.nanoseconds = [0] * MAX_SEGMENTS
        self.counts = [0] * MAX_SEGMENTS
        # Of nested spans of one segment only the outermost counts.
        self.depth = [0] * MAX_SEGMENTS
        self.thread = threading.current_thread()


class LocalTally(threading.local):
    """Gives each thread its tally at first use."""

    def __init__(self, recorder: Recorder) -> None:
        self.tally = recorder.join()
