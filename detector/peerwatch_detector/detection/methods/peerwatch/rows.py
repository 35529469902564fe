"""Median and spread of every row of some samples, some of which are unknown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.peers import Levels


def row_median(values: NDArray[np.floating]) -> Levels:
    """Return the median of the finite values of every row, shape (n_rows,); NaN = none."""
    ranked = np.sort(values, axis=1)
    count = np.isfinite(ranked).sum(axis=1)
    rows = np.arange(len(ranked))
    if not ranked.shape[1]:
        return np.full(len(ranked), np.nan)
    low = ranked[rows, np.maximum((count - 1) // 2, 0)].astype(np.float64)
    high = ranked[rows, np.minimum(count // 2, ranked.shape[1] - 1)]
    return np.where(count > 0, (low + high) / 2, np.nan)


def row_spreads(values: NDArray[np.float32], least: int) -> tuple[Levels, Levels]:
    """Return the median and the median absolute deviation of every row.

    Parameters
    ----------
    values
        Shape (n_rows, n_columns), NaN = unknown; in order within every row afterwards.
    least
        Finite values a row must have; with fewer both are NaN.

    Returns
    -------
    tuple
        Two arrays of shape (n_rows,).
    """
    if not compiled.ready():
        known = np.isfinite(values).sum(axis=1) >= least
        middle = np.where(known, row_median(values), np.nan)
        away = row_median(np.abs(values - middle[:, None].astype(np.float32)))
        return middle, away
    values.sort(axis=1)
    middle, away = np.full((2, len(values)), np.nan)
    _spreads_of_sorted(values, least, middle, away)
    return middle, away


@compiled.compiled
def _spreads_of_sorted(
    values: NDArray[np.float32], least: int, middle: Levels, away: Levels
) -> None:
    """Fill in the medians and median absolute deviations of rows in order, NaN last."""
    for row in range(len(values)):
        ranked = values[row]
        count = len(ranked)
        while count > 0 and not np.isfinite(ranked[count - 1]):
            count -= 1
        if count < least:
            continue
        middle[row] = (np.float64(ranked[(count - 1) // 2]) + ranked[count // 2]) / 2
        centre = np.float32(middle[row])
        above = int(np.searchsorted(ranked[:count], centre))
        half = count // 2
        # Deviations grow from the centre to both sides. How many of the ``half`` smallest lie
        # below it, ``taken``, is found by halving.
        taken, most = max(0, half - (count - above)), min(half, above)
        while taken < most:
            halfway = (taken + most) // 2
            if centre - ranked[above - 1 - halfway] < ranked[above + half - halfway - 1] - centre:
                taken = halfway + 1
            else:
                most = halfway
        low, high = above - taken, above + half - taken
        # The next larger one, and the largest of the ``half`` smallest.
        upper, lower = np.float32(np.inf), np.float32(0)
        if low > 0:
            upper = centre - ranked[low - 1]
        if high < count and ranked[high] - centre < upper:
            upper = ranked[high] - centre
        if low < above:
            lower = centre - ranked[low]
        if high > above and ranked[high - 1] - centre > lower:
            lower = ranked[high - 1] - centre
        if count % 2:
            lower = upper
        away[row] = (np.float64(lower) + upper) / 2
