"""How long a server that asks to be asked less is left alone, whatever job the request was for.

Retry-After: RFC 9110, section 10.2.3: seconds, or a date of HTTP; 429: RFC 6585, section 4.
"""

from __future__ import annotations

import logging
import math
import random
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime

from peerwatch_detector.errors import ThrottledError

logger = logging.getLogger(__name__)

_SECONDS = re.compile(r"\d+(\.\d+)?", re.ASCII)


def seconds_of(retry_after: str, date: str, now: float) -> float:
    """Return how many seconds a Retry-After header asks to wait; 0 without a valid one.

    Parameters
    ----------
    retry_after
        The header's value: seconds or a date.
    date
        The Date header of the same response: the server's own clock, which a date is measured by.
    now
        Unix time in seconds, if the server sent no date.
    """
    if _SECONDS.fullmatch(retry_after.strip()):
        return float(retry_after)
    until = _unix_time(retry_after)
    if until is None:
        return 0.0
    since = _unix_time(date)
    return max(0.0, until - (now if since is None else since))


def _unix_time(date: str) -> float | None:
    try:
        found = parsedate_to_datetime(date)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, LookupError, OverflowError):
        return None


class Throttle:
    """Doubles the wait with every round of throttled responses; for any thread.

    The wait is never shorter than what the server asks for, up to the longest. It begins small
    again once the server has throttled nothing for as long as the longest wait, from the end of
    the last one: a server that answers every other request is still throttling.

    Parameters
    ----------
    longest_seconds
        Longest wait.
    draw
        Random numbers from 0 to 1; a wait of our own is shortened by up to a half of it, so that
        detectors of the same server do not come back at the same moment.
    """

    def __init__(self, longest_seconds: float, draw: Callable[[], float] = random.random) -> None:
        self._longest, self._draw = longest_seconds, draw
        self._lock = threading.Lock()
        self._rounds, self._noted, self._until = 0, -math.inf, -math.inf
        self._last: ThrottledError | None = None

    def throttled(self, error: ThrottledError, asked: float, now: float) -> None:
        """Set the wait, unless the request was sent before the last throttled response came.

        Parameters
        ----------
        error
            What the server answered.
        asked, now
            When the request was sent, and now; on the clock of ``time.monotonic``.
        """
        with self._lock:
            if asked < self._noted:
                self._until = max(self._until, now + min(self._longest, error.retry_after))
                return
            begins = self._last is None
            self._rounds, self._noted, self._last = self._rounds + 1, now, error
            own = 2.0 ** min(self._rounds - 1, 30) * (1 - self._draw() / 2)
            wait = min(self._longest, max(error.retry_after, own))
            self._until = now + wait
        if begins:
            logger.warning("server_throttles wait_seconds=%.1f error=%s", wait, error)

    def answered(self, now: float) -> None:
        """Take in an answer: the server is well again if it throttled nothing for long."""
        with self._lock:
            if self._last is None or now - self._until < self._longest:
                return
            self._rounds, self._last = 0, None
        logger.info("server_throttles_no_more")

    def left(self, now: float) -> float:
        """Return how many seconds to wait from now."""
        return max(0.0, self._until - now)

    def check(self) -> None:
        """Refuse to ask while waiting.

        Raises
        ------
        ThrottledError
            With what the server answered last; nothing was sent.
        """
        last, wait = self._last, self.left(time.monotonic())
        if wait > 0 and last is not None:
            raise ThrottledError(
                f"Not asked for another {wait:.1f} s, at most "
                f"prometheus.reading.longest_wait_seconds; the last was: {last}",
                wait,
                sent=False,
            )
