"""Answers that are read when somebody opens a page, and kept for a while for all who look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_KEPT_JOBS = 32

T = TypeVar("T")


class Kept(Generic[T]):
    """Reads something about a job, and keeps it.

    A page is loaded again and again by everybody who has it open, which must not keep Prometheus
    from its answer.

    Parameters
    ----------
    read
        Reads it, by the job's id.
    seconds
        For how long it is kept.
    clock
        Seconds that only rise.
    """

    def __init__(
        self,
        read: Callable[[str], T],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[str, tuple[float, T]] = {}
        self._lock = threading.Lock()

    def get(self, job_id: str) -> T:
        """Return it for a job, of one of the last 32 that were asked for."""
        # Locked all the while: who comes second waits for the answer instead of asking too.
        with self._lock:
            known = self._kept.get(job_id)
            if known is not None and self._clock() - known[0] < self._seconds:
                return known[1]
            found = self._read(job_id)
            self._kept.pop(job_id, None)
            self._kept[job_id] = (self._clock(), found)
            while len(self._kept) > _KEPT_JOBS:
                del self._kept[next(iter(self._kept))]
            return found
