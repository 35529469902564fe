"""Answers that are read when somebody opens a view, and kept for a while for all who look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

# Chosen: more than a team looks at within the minutes that answers are kept.
_KEPT_JOBS = 32

T = TypeVar("T")


class Kept(Generic[T]):
    """Reads something about a job, and keeps it.

    A view is loaded again and again by everybody who has it open, which must not keep Prometheus
    from its answer.

    Parameters
    ----------
    read
        Reads it, by the job's id or another key.
    seconds
        For how long it is kept, or what says so of one that was read.
    clock
        Seconds that only rise.
    """

    def __init__(
        self,
        read: Callable[[str], T],
        seconds: float | Callable[[T], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._clock = clock
        # Until when each is kept.
        self._kept: dict[str, tuple[float, T]] = {}
        self._reading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> T:
        """Return it, of one of the last 32 that were asked for."""
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        # Locked all the while: who comes second waits for the answer instead of asking too. What
        # is slow to read keeps nobody else waiting.
        with reading:
            known = self._kept.get(key)
            if known is not None and self._clock() < known[0]:
                return known[1]
            found = self._read(key)
            seconds = self._seconds(found) if callable(self._seconds) else self._seconds
            with self._lock:
                self._kept.pop(key, None)
                self._kept[key] = (self._clock() + seconds, found)
                while len(self._kept) > _KEPT_JOBS:
                    oldest = next(iter(self._kept))
                    del self._kept[oldest]
                    self._reading.pop(oldest, None)
            return found
