"""How long work takes that others interrupt: the sum of the least times of its parts.

Whatever else runs on a node only adds time, and hardly ever to the same part in every pass. A part
is short against the time slices of the kernel, so that it is taken whole now and then, however
busy the node is. What is slow by itself is slow in every pass.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Nanoseconds: on a CPU, waiting for one; then how often (Documentation/scheduler/sched-stats).
_SCHEDSTAT = Path("/proc/thread-self/schedstat")
# Chosen: even if every other look were interrupted, so many in a row never are.
_TRIES = 100
# A gain below this is no news. Chosen: a twentieth of the smallest tolerance of such a check, 20 %.
_NEGLIGIBLE = 0.01


def undisturbed(schedstat: Path = _SCHEDSTAT) -> float:
    """Return a time in seconds that stands still while this thread waits for a CPU.

    For work that is too long to be taken whole, such as waiting for a disk.

    Parameters
    ----------
    schedstat
        Where the kernel counts it; without it the time never stands still.
    """
    for _ in range(_TRIES):
        waited, now = _waited(schedstat), time.perf_counter()
        # A wait between both would count for one of them only, and time could run backwards.
        if _waited(schedstat) == waited:
            break
    return now - waited


def _waited(schedstat: Path) -> float:
    """Return for how many seconds this thread has waited for a CPU."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class LeastTime:
    """The least time of each part, over passes.

    Parameters
    ----------
    passes
        After so many without news the time counts as stable.
    """

    def __init__(self, passes: int = 5) -> None:
        self._passes = passes
        self._least: list[float] = []
        self._known = float("inf")
        self._unchanged = 0

    @property
    def seconds(self) -> float:
        """The sum of the least times; infinite before the first pass."""
        return sum(self._least) if self._least else float("inf")

    @property
    def is_stable(self) -> bool:
        """Whether more passes are not likely to change it."""
        return self._unchanged >= self._passes

    def add(self, parts: Sequence[float]) -> None:
        """Add a pass: the seconds of its parts, in the same order each time."""
        self._least = list(map(min, self._least, parts)) if self._least else list(parts)
        if self.seconds < self._known * (1 - _NEGLIGIBLE):
            self._known, self._unchanged = self.seconds, 0
        else:
            self._unchanged += 1


def least_seconds(
    one_pass: Callable[[], Sequence[float]],
    *,
    within: float,
    enough: Callable[[float], bool] = lambda _seconds: True,
    passes: int = 5,
) -> float:
    """Return the least time of some work, in seconds.

    Parameters
    ----------
    one_pass
        Does the work once; returns the seconds of its parts.
    within
        Seconds after which no pass is begun that would end later; the first always is.
    enough
        Whether a time is as expected. While it is not, passes go on until ``within``: a node that
        is slow by itself stays slow, and one that others disturbed does not.
    passes
        As for ``LeastTime``.
    """
    found = LeastTime(passes)
    begun = time.monotonic()
    longest = 0.0
    while True:
        start = time.monotonic()
        found.add(one_pass())
        longest = max(longest, time.monotonic() - start)
        if found.is_stable and enough(found.seconds):
            return found.seconds
        if time.monotonic() - begun + longest > within:
            return found.seconds
