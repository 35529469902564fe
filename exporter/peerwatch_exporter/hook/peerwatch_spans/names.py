"""The numbers that stand for segments, and for what a collective's span says besides."""

from __future__ import annotations

import re
import threading

SEGMENTS = ("step", "data", "forward", "backward", "optimizer", "checkpoint", "gc", "collective")
STEP, DATA, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, GC, COLLECTIVE = range(len(SEGMENTS))
# With the eight above they are less than the ring's 64.
MOST_USER_SEGMENTS = 32
# With names of usual length they fit into the ring's header of 64 KiB; a longer group's is cut.
MOST_DETAILS = 512
_LONGEST_GROUP = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,48}")


class Names:
    """Gives out numbers, up to a limit.

    Attributes
    ----------
    segments, details
        What is named so far, by number; a detail is group, collective and peer, the first None.
    dropped
        How many spans were not taken because their segment got no number.
    """

    def __init__(self) -> None:
        self.segments = list(SEGMENTS)
        self.details: list[object] = [None]
        self.dropped = 0
        self._numbers = {name: number for number, name in enumerate(SEGMENTS)}
        self._detail_numbers: dict[object, int] = {}
        self._lock = threading.Lock()

    def segment(self, name: str) -> int | None:
        """Return the number of a segment the program names; None if there is no room for it."""
        try:
            number = self._numbers.get(name)
        except TypeError:  # no name at all
            number, name = None, ""
        return self._new_segment(name) if number is None else number

    def _new_segment(self, name: object) -> int | None:
        with self._lock:
            room = len(self.segments) < len(SEGMENTS) + MOST_USER_SEGMENTS
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                room = False
            elif name in self._numbers:  # another thread was first
                return self._numbers[name]
            if not room:
                self.dropped += 1
                return None
            number = self._numbers[str(name)] = len(self.segments)
            self.segments.append(str(name))
            return number

    def detail(self, group: str, collective: str, peer: int | None) -> int:
        """Return the number that stands for a group and what it did; 0 if there is no room."""
        key = (group, collective, peer)
        number = self._detail_numbers.get(key)
        if number is None:
            with self._lock:
                if len(self.details) >= MOST_DETAILS:
                    return 0
                self.details.append([group[:_LONGEST_GROUP], collective, peer])
                number = self._detail_numbers[key] = len(self.details) - 1
        return number
