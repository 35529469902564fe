"""A token bucket: so many requests at once, and one more after each interval."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RateLimit:
    """Lets requests through while there are tokens.

    Parameters
    ----------
    interval_seconds
        Time until one more token is there.
    burst
        Tokens at most, and at first.
    monotonic
        Seconds that only rise.
    """

    def __init__(
        self,
        interval_seconds: float,
        burst: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval_seconds
        self._burst = burst
        self._monotonic = monotonic
        self._tokens = float(burst)
        self._filled = monotonic()
        self._lock = threading.Lock()

    def allow(self) -> bool:
        """Take a token; return whether there was one."""
        with self._lock:
            now = self._monotonic()
            gained = (now - self._filled) / self._interval
            self._tokens = min(float(self._burst), self._tokens + gained)
            self._filled = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
