"""The fixed clock of the exporter: one tick per second, at the same point of every second."""

from __future__ import annotations

import math

# Detection compares one value a second.
PERIOD_SECONDS = 1.0
# Later than this a tick is left out: two ticks close together would make two uneven rates.
_TOLERANCE_SECONDS = 0.5


class Ticker:
    """Says when the next tick is, and counts those that could not be had.

    Ticks stand at ``phase + n`` seconds of the monotonic clock for whole ``n``. The phase is
    where Unix time was at a whole second when the exporter started, so that all nodes of a job
    read at the same instants, and it never moves: no drift, whatever a tick costs, and a step of
    the Unix clock does not matter.

    Parameters
    ----------
    monotonic, unix
        Both clocks now.

    Attributes
    ----------
    missed
        Ticks left out since the start because the process was busy, stopped or starved.
    """

    def __init__(self, monotonic: float, unix: float) -> None:
        self._phase = (monotonic - unix) % PERIOD_SECONDS
        # The exporter takes a first snapshot at once: no tick follows right after it.
        self._last = self._number(monotonic + _TOLERANCE_SECONDS)
        self.missed = 0

    def due(self, now: float) -> bool:
        """Return whether a tick is due at ``now``; each is given once, and late ones not at all."""
        number = self._number(now)
        if number <= self._last:
            return False
        late = now - self._time(number) > _TOLERANCE_SECONDS
        self.missed += number - self._last - (0 if late else 1)
        self._last = number
        return not late

    def wait_seconds(self, now: float) -> float:
        """Return the seconds from ``now`` until the next tick, never less than 0."""
        return max(0.0, self._time(self._last + 1) - now)

    def _number(self, now: float) -> int:
        # Clocks are read in binary fractions: a hair early is on time.
        return math.floor((now - self._phase) / PERIOD_SECONDS + 1e-6)

    def _time(self, number: int) -> float:
        return self._phase + number * PERIOD_SECONDS
