"""Notices that the machine's clock was set, which is logged and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Literal

logger = logging.getLogger(__name__)

Direction = Literal["forward", "back"]

# By so many seconds a clock must be off at once; NTP corrects less by slewing. Chosen: less than
# the 15 s of a cycle, and far more than slewing moves a clock in one.
LEAST_JUMP_SECONDS = 10.0


class ClockWatch:
    """Compares a clock with one that is never set; in one thread.

    Parameters
    ----------
    clock
        Unix time in seconds.
    steady
        Seconds of a clock that nobody sets, as ``time.monotonic``. It stands still while a machine
        is suspended, which so counts as a jump forward.
    """

    def __init__(self, clock: Callable[[], float], steady: Callable[[], float]) -> None:
        self._clock, self._steady = clock, steady
        self._offset = clock() - steady()
        self._jumps: dict[Direction, int] = {"forward": 0, "back": 0}

    @property
    def jumps(self) -> Mapping[Direction, int]:
        """How often the clock was set so far, by direction."""
        return dict(self._jumps)

    def check(self) -> None:
        """Compare the clocks, and log and count a jump since the last time."""
        offset = self._clock() - self._steady()
        seconds, self._offset = offset - self._offset, offset
        if abs(seconds) < LEAST_JUMP_SECONDS:
            return
        direction: Direction = "forward" if seconds > 0 else "back"
        self._jumps[direction] += 1
        logger.warning("clock_jumped direction=%s seconds=%.0f", direction, abs(seconds))
