"""How often logs are looked for, and how long the process rests: neither may cost a job much."""

from __future__ import annotations

# Chosen: what a rank that fails at once has written is known seconds later.
_SEARCH_SECONDS = 2.0
# After a search among a hundred thousand names.
_LONGEST_SECONDS = 60.0
# Of a core: searches as a rule (docs/exporter.md), and those that new ranks are the reason for.
_SEARCH_RATIO, _HURRIED_RATIO = 0.01, 0.1
# A flood of errors, each of which is looked at, takes more time than its reading leaves.
_MOST_BUSY_RATIO = 0.5


class SearchSchedule:
    """When the next search is due: the longer one takes, the rarer they are.

    Attributes
    ----------
    due
        When (seconds of the monotonic clock).
    """

    def __init__(self) -> None:
        self.due = 0.0
        self._soonest = 0.0

    def searched(self, now: float, cpu_seconds: float) -> None:
        """Note that a search has ended, and what it took."""
        rest = max(_SEARCH_SECONDS, cpu_seconds / _SEARCH_RATIO)
        self.due = now + min(rest, _LONGEST_SECONDS)
        self._soonest = now + min(cpu_seconds / _HURRIED_RATIO, _LONGEST_SECONDS)

    def hurry(self) -> None:
        """Have the next search come soon: other ranks are here."""
        self.due = min(self.due, self._soonest)


def rest_seconds(tick_seconds: float, lasted: float, cpu_seconds: float) -> float:
    """Return how long to wait until the next tick.

    Parameters
    ----------
    tick_seconds
        From the beginning of one tick to that of the next.
    lasted, cpu_seconds
        How long the tick took, and how much CPU time.
    """
    return max(0.0, tick_seconds - lasted, cpu_seconds / _MOST_BUSY_RATIO - lasted)
