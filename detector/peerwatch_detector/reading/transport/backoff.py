"""How long a server that fails again and again is left alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from peerwatch_detector.errors import ReadError

# A single failure may be anything; the request after it is asked at once. Not more: a server that
# is down is asked by every job.
TOLERATED = 1


class Backoff:
    """Doubles the wait with every failure in a row; a success ends it.

    Parameters
    ----------
    longest_seconds
        Longest wait.
    tolerated
        Failures in a row after which the next request is asked at once.
    draw
        Random numbers from 0 to 1. A wait is shortened by up to a half of it, so that detectors
        that lost the same server do not come back at the same moment.
    """

    def __init__(
        self,
        longest_seconds: float,
        tolerated: int = TOLERATED,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._longest, self._tolerated, self._draw = longest_seconds, tolerated, draw
        self._failures, self._until = 0, -math.inf
        self._last: ReadError | None = None

    def succeeded(self) -> None:
        """Forget the failures."""
        self._failures, self._until, self._last = 0, -math.inf, None

    def failed(self, error: ReadError, now: float) -> None:
        """Count a failure and set the wait."""
        self._failures, self._last = self._failures + 1, error
        doublings = self._failures - self._tolerated - 1
        if doublings >= 0:
            wait = min(self._longest, 2.0 ** min(doublings, 30))
            self._until = now + wait * (1 - self._draw() / 2)

    def left(self, now: float) -> float:
        """Return how many seconds to wait from now."""
        return max(0.0, self._until - now)

    def check(self, now: float) -> None:
        """Refuse to ask while waiting.

        Raises
        ------
        ReadError
            With the reason of the last failure.
        """
        wait = self.left(now)
        if wait > 0 and self._last is not None:
            raise ReadError(
                self._last.reason,
                f"Not asked for another {wait:.1f} s after {self._failures} failures in a row, at "
                f"most prometheus.reading.longest_wait_seconds; the last was: {self._last}",
            )
