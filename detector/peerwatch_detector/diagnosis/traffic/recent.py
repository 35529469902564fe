"""The newest levels of some nodes, or of a job, on a regular grid of time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A value stands for this long, where samples come every few seconds; what is longer is a gap. One
# usual scrape interval.
_CARRY_SECONDS = 15.0


class Recent:
    """A ring of the newest levels.

    Parameters
    ----------
    rows
        Nodes; 1 for a job.
    seconds
        How far back it reaches.
    step_seconds
        Time between two levels.
    """

    def __init__(self, rows: int, seconds: float, step_seconds: float) -> None:
        self.step_seconds = step_seconds
        self.newest: int | None = None
        self._values = np.full((rows, round(seconds / step_seconds)), np.nan, np.float32)

    def write(self, steps: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Take in levels; those that are not known leave what is known as it is.

        Parameters
        ----------
        steps
            Which of the grid's steps, rising, shape (n_steps,).
        values
            Shape (n_rows, n_steps).
        """
        if not len(steps):
            return
        size, last = self._values.shape[1], int(steps[-1])
        if self.newest is None or abs(last - self.newest) >= size:
            self._values[:] = np.nan
            self.newest = last
        elif last > self.newest:
            self._values[:, np.arange(self.newest + 1, last + 1) % size] = np.nan
            self.newest = last
        held = (steps > self.newest - size) & (steps <= self.newest)
        places = steps[held] % size
        given = values[:, held]
        self._values[:, places] = np.where(np.isfinite(given), given, self._values[:, places])

    def last(self, seconds: float) -> NDArray[np.float32]:
        """Return the newest levels, shape (n_rows, n_steps); all of them if it holds fewer."""
        size = self._values.shape[1]
        if self.newest is None:
            return self._values[:, :0]
        count = min(size, round(seconds / self.step_seconds))
        return self._values[:, np.arange(self.newest - count + 1, self.newest + 1) % size]


def spacing(levels: NDArray[np.float32]) -> int:
    """Return how many steps lie between two levels that are known, as a rule.

    Parameters
    ----------
    levels
        Of one row, shape (n_steps,).
    """
    known = np.flatnonzero(np.isfinite(levels))
    return max(1, round(float(np.median(np.diff(known))))) if len(known) > 1 else 1


def carried(levels: NDArray[np.float32], step_seconds: float) -> NDArray[np.float32]:
    """Let each level stand until the next one, for some seconds at most; same shape."""
    most = round(_CARRY_SECONDS / step_seconds)
    known = np.isfinite(levels)
    if most < 1 or known.all():
        return levels
    place = np.arange(levels.shape[1])
    source = np.maximum.accumulate(np.where(known, place, -most), axis=1)
    values = np.take_along_axis(levels, np.maximum(source, 0), axis=1)
    return np.where(place - source < most, values, np.float32(np.nan))
