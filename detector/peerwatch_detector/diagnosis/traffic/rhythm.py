"""The rhythm of a job's traffic: the period that it usually has, and since when it has none."""

from __future__ import annotations

from collections import deque

import numpy as np

from peerwatch_detector.diagnosis.traffic.period import (
    Period,
    least_strength,
    longest_period,
    shortest_period,
)

# So long is examined, or so many independent samples where those come more rarely. Chosen: steps of
# up to two minutes repeat in five; of 40 samples chance correlates by less than a half (period.py).
WINDOW_SECONDS, _WINDOW_SAMPLES = 300.0, 40
# What was found within an hour says what is usual, as of the level.
_MEMORY_SECONDS = 3600.0
# A rhythm is usual that was found in so large a share of at least so long a time. Chosen: it may be
# missed in one of ten, as during a checkpoint; the time is that of a usual level (level.py).
_USUAL_SHARE, _LEAST_SECONDS = 0.9, 600.0
# A period near what can be seen at all may have left it, as when steps become shorter. Chosen: by
# more than a fifth, the slowdown that is a straggler's, and jitter.
_NEAR_LIMIT = 1.3


def window_seconds(resolution_seconds: float) -> float:
    """Return how long a time is examined at once."""
    return max(WINDOW_SECONDS, _WINDOW_SAMPLES * resolution_seconds)


class Rhythm:
    """Remembers the periods that a job's traffic had.

    Parameters
    ----------
    resolution_seconds
        Time between two independent samples of traffic.
    """

    def __init__(self, resolution_seconds: float) -> None:
        self.resolution_seconds = resolution_seconds
        self.window_seconds = window_seconds(resolution_seconds)
        self.least_strength = least_strength(self.window_seconds, resolution_seconds)
        self._found: deque[tuple[float, Period]] = deque()
        self._irregular_since: float | None = None
        self._expected: float | None = None

    def update(self, time: float, period: Period | None) -> None:
        """Take in what the newest window showed; None leaves open whether anything repeats."""
        while self._found and not time - _MEMORY_SECONDS < self._found[0][0] < time:
            self._found.popleft()
        if period is None:
            self._irregular_since = None
            return
        expected = self._usual()
        if expected is not None:
            self._expected = expected
        if self._repeats(period):
            self._expected, self._irregular_since = expected, None
        elif self._irregular_since is None:
            self._irregular_since = time if self._expected is not None else None
        elif time - self._irregular_since > _MEMORY_SECONDS:
            # From then on the job is one without rhythm.
            self._expected = self._irregular_since = None
        self._found.append((time, period))

    @property
    def period_seconds(self) -> float | None:
        """The period of the newest window; None if nothing repeats in it."""
        if not self._found or not self._repeats(self._found[-1][1]):
            return None
        return self._found[-1][1].seconds

    @property
    def usual_seconds(self) -> float | None:
        """The period that the traffic usually has; None if it has none."""
        return self._expected

    def irregular_seconds(self, time: float) -> float:
        """Return for how long a usual rhythm has been missing; 0 if it is not."""
        return 0.0 if self._irregular_since is None else max(0.0, time - self._irregular_since)

    def _usual(self) -> float | None:
        if not self._found or self._found[-1][0] - self._found[0][0] < _LEAST_SECONDS:
            return None
        regular = [each.seconds for _, each in self._found if self._repeats(each)]
        if len(regular) < _USUAL_SHARE * len(self._found):
            return None
        usual = float(np.median(regular))
        shortest = _NEAR_LIMIT * shortest_period(self.resolution_seconds)
        longest = longest_period(self.window_seconds) / _NEAR_LIMIT
        return usual if shortest <= usual <= longest else None

    def _repeats(self, period: Period) -> bool:
        return period.strength >= self.least_strength
