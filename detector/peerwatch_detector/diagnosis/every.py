"""When something is due that is done once in a while, on a clock that may be set."""

from __future__ import annotations


class Every:
    """Says once in a period that something is due.

    Parameters
    ----------
    seconds
        The period.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is due, in which case it counts as done now."""
        # The server's clock may have been set back; before it first answers, ours counts.
        waits = self._last is not None and 0 <= now - self._last < self._seconds
        if not waits:
            self._last = now
        return not waits
