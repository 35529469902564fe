"""Times of samples: where a length of time lies among them, and when two lengths are equal.

Times are seconds, and whole milliseconds: samples have no finer ones. Sums of such numbers are
brought back to them, so that equal lengths of time are equal numbers and thresholds mean what they
say with samples every 10 ms too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.frame import from_grid, to_grid

# Of a step; times that differ by less are one.
_SAME = 1e-4


def to_milliseconds(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times or lengths of time without what rounding added to them."""
    exact: NDArray[np.float64] = np.round(seconds, 3)
    return exact


def elapsed(start: float, end: float) -> float:
    """Return the length of time between two times."""
    return round(end - start, 3)


def exact_times(times: NDArray[np.float64], step_seconds: float) -> NDArray[np.float64]:
    """Return the times of samples as their grid has them."""
    return times if step_seconds >= 1 else from_grid(to_grid(times, step_seconds), step_seconds)


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """Evenly spaced times of samples.

    Parameters
    ----------
    start
        Unix time of the first sample.
    step_seconds
        Time from one to the next.
    count
        How many there are.
    """

    start: float
    step_seconds: float
    count: int

    @classmethod
    def of(cls, times: NDArray[np.float64], step_seconds: float) -> TimeGrid:
        """Return the grid of a frame's times."""
        return cls(float(times[0]) if len(times) else 0.0, step_seconds, len(times))

    def time(self, index: int) -> float:
        """Return the time of a sample."""
        return round(self.start + index * self.step_seconds, 3)

    def until(self, time: float) -> int:
        """Return how many samples there are up to and with a time."""
        index = math.floor((time - self.start) / self.step_seconds + _SAME) + 1
        return min(max(0, index), self.count)

    def columns(self, time: float, seconds: float) -> slice:
        """Return where the samples of so many seconds up to and with ``time`` are."""
        return slice(self.until(time - seconds), self.until(time))
