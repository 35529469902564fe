"""The difference of two clocks as a line over time, from the fastest round trips between them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

# With one every 20 s, somewhat more than five minutes.
KEPT = 16
# A slower one (than twice the fastest, and what waking up takes) has waited somewhere, and says
# less about the clocks.
_SLOW_FACTOR, _SLOW_NS = 2.0, 20_000
# Before, what the round trips themselves vary by would be taken for drift: 20 us in 15 s are 1.3
# ppm.
_SHORTEST_NS = 15 * 10**9
# Quartz drifts by less; a clock that is being slewed by up to 500 ppm.
_MOST_DRIFT = 600e-6
# What is farther from the line than this is another line: a machine was suspended or moved. Chosen:
# datagrams are late by less, and a suspended machine misses more.
_JUMP_NS = 2_000_000
# By how much the error may grow while nobody answers: chosen, quartz changes its drift with the
# temperature by a ppm or so.
_AGEING = 2e-6


class RoundTrip(NamedTuple):
    """At a monotonic time, own clock minus the other, and what the round trip took; ns."""

    at: int
    difference: int
    round_trip: int


class Estimate(NamedTuple):
    """Own clock minus the other (ns), its drift (ns per ns), and by how much it may be off (ns)."""

    difference: int
    drift: float
    error: float


class ClockLine:
    """A line through the fast ones of the last round trips, by least squares."""

    def __init__(self) -> None:
        self._trips: deque[RoundTrip] = deque(maxlen=KEPT)

    def add(self, trip: RoundTrip) -> None:
        """Add a round trip; one that is off the line begins a new one."""
        if self._trips:
            expected = self.at(trip.at)
            away = abs(trip.difference - expected.difference)
            since = trip.at - self._trips[-1].at
            if away > _JUMP_NS + trip.round_trip + _MOST_DRIFT * since:
                self._trips.clear()
        self._trips.append(trip)

    def at(self, now: int) -> Estimate:
        """Return the estimate at a monotonic time in nanoseconds.

        Raises
        ------
        ValueError
            If there was no round trip yet.
        """
        if not self._trips:
            raise ValueError("there was no round trip yet")
        trips = list(self._trips)
        slowest = min(trip.round_trip for trip in trips) * _SLOW_FACTOR + _SLOW_NS
        fast = [trip for trip in trips if trip.round_trip <= slowest]
        # Differences of clocks have more digits than a float: all is counted from one of them.
        origin = fast[-1]
        times = [trip.at - origin.at for trip in fast]
        values = [trip.difference - origin.difference for trip in fast]
        mean_time = sum(times) / len(fast)
        mean_value = sum(values) / len(fast)
        drift = 0.0
        if times[-1] - times[0] >= _SHORTEST_NS:
            spread = sum((time - mean_time) ** 2 for time in times)
            pairs = zip(times, values, strict=True)
            both = sum((time - mean_time) * (value - mean_value) for time, value in pairs)
            drift = max(-_MOST_DRIFT, min(both / spread, _MOST_DRIFT))
        else:
            mean_time, mean_value = 0.0, 0.0  # the newest: an older one has drifted away from it
        ahead = mean_value + drift * (now - origin.at - mean_time)
        error = min(trip.round_trip for trip in fast) / 2
        error += _AGEING * max(0, now - trips[-1].at)
        return Estimate(origin.difference + round(ahead), drift, error)
