"""How fast a counter of finished steps rises, second by second.

A step may take a tenth of a second or a minute, so no window of time suits all jobs. The rate
is that of each step instead: its share of the time from the step before to itself. Only the present
step is open: it is as slow, at least, as the time that it has taken so far says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A counter that rises so many times faster than usual was set, not counted: another rank's value,
# or a job that resumed from a later checkpoint.
_SET = 10.0
# It is the median of nodes, not all of which are read at every second: it may waver by two steps,
# or by what is counted in some seconds. A larger fall is a job that began again.
_WAVERS, _WAVERING_RISES = 2.0, 5.0


def counter_rate(counter: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rate of a counter in every second.

    Parameters
    ----------
    counter
        Its value second by second, shape (n_seconds,); NaN = no sample.

    Returns
    -------
    NDArray[np.float64]
        Same shape, per second; NaN where it is not known: before the first rise, from a fall (the
        job began again) to the rise that follows, and without samples at the end.
    """
    result = np.full(len(counter), np.nan)
    known, change = _changes(counter)
    marks = np.flatnonzero(change != 0) + 1
    if not len(marks):
        return result
    at, moved = known[marks], change[marks - 1]
    # Between two marks the counter rises once, at the later one; what ends in a fall is unknown,
    # and so is what follows it until the next rise.
    seconds = np.diff(at).astype(np.float64)
    rates = np.where((moved[1:] > 0) & (moved[:-1] > 0), moved[1:] / seconds, np.nan)
    if np.isfinite(rates).any():
        rates = np.where(rates > _SET * np.nanmedian(rates), np.nan, rates)
    result[at[0] + 1 : at[-1] + 1] = np.repeat(rates, np.diff(at))
    open_seconds = int(known[-1] - at[-1])
    if open_seconds and len(rates) and np.isfinite(rates[-1]):
        result[at[-1] + 1 : known[-1] + 1] = _open(rates[-1], seconds[-1], open_seconds)
    return result


def last_rise(counter: NDArray[np.float64]) -> int | None:
    """Return how many seconds before the last sample a counter last rose; None = it never did."""
    known, change = _changes(counter)
    rises = np.flatnonzero(change > 0) + 1
    return int(known[-1] - known[rises[-1]]) if len(rises) else None


def last_fall(counter: NDArray[np.float64]) -> int | None:
    """Return where a counter last fell, as an index; None = it never did."""
    known, change = _changes(counter)
    falls = np.flatnonzero(change < 0) + 1
    return int(known[falls[-1]]) if len(falls) else None


def _changes(counter: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return where there are samples, and by how much each differs from the one before it.

    A fall that is no more than wavering is none, and the rise that makes up for it is none either.
    """
    known = np.flatnonzero(np.isfinite(counter))
    values = counter[known]
    change = np.diff(values)
    if not (change < 0).any():
        return known, change
    rises = change[change > 0]
    most = max(_WAVERS, _WAVERING_RISES * float(np.median(rises))) if len(rises) else _WAVERS
    # The highest value so far counts, begun anew at every real fall.
    lift = np.concatenate(([0.0], np.cumsum(np.where(change < -most, 1 - change, 0.0))))
    return known, np.where(change < -most, change, np.diff(np.maximum.accumulate(values + lift)))


def _open(rate: float, seconds: float, open_seconds: int) -> float:
    """Return the rate of a step that is not finished so long after the one before it."""
    if open_seconds <= seconds:
        return rate
    return min(rate, 1.0 / open_seconds)
