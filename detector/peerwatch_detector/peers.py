"""What the other nodes do: leave-one-out medians, second by second.

A node is compared in just the seconds in which it has samples itself: training has a rhythm of
seconds, and a mean over other seconds than the peers' would see that rhythm as a deviation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.float64]


def job_median(values: NDArray[np.float32]) -> Levels:
    """Return the median over all units at every step.

    Parameters
    ----------
    values
        Shape (n_units, n_steps), NaN = missing; a unit is a node, or one GPU of a node.

    Returns
    -------
    Levels
        Shape (n_steps,); NaN where no unit has a sample.
    """
    ranked = np.sort(values.T, axis=1)
    count = np.isfinite(ranked).sum(axis=1)
    rows = np.arange(len(ranked))
    low = ranked[rows, np.maximum((count - 1) // 2, 0)]
    high = ranked[rows, np.minimum(count // 2, ranked.shape[1] - 1)]
    return np.where(count > 0, (low.astype(np.float64) + high) / 2, np.nan)


def others_medians(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the low and the high median of the others for every unit and step.

    With an odd number of others both are the same; with two others, as in a job of three nodes,
    they are those two.

    Parameters
    ----------
    values
        Shape (n_units, n_steps), NaN = missing.

    Returns
    -------
    tuple
        Two arrays of shape (n_units, n_steps); NaN where the unit is missing or alone.
    """
    steps = np.ascontiguousarray(values.T)
    # One column more than units, so that "the next in order" exists everywhere.
    ranked = np.full((len(steps), steps.shape[1] + 1), np.nan, dtype=steps.dtype)
    ranked[:, :-1] = np.sort(steps, axis=1)
    others = np.isfinite(steps).sum(axis=1) - 1
    rows = np.arange(len(steps))
    result = []
    for place in ((others - 1) // 2, others // 2):
        here = np.clip(place, 0, steps.shape[1] - 1)
        this, following = ranked[rows, here, None], ranked[rows, here + 1, None]
        # Without the unit, all that is above it in order moves down by one place.
        median = np.where(steps > this, this, following)
        usable = np.isfinite(steps) & (others > 0)[:, None]
        result.append(np.where(usable, median, np.float32(np.nan)).T)
    return result[0], result[1]


def compare(values: NDArray[np.float32]) -> tuple[Levels, Levels, Levels]:
    """Average every unit and its peers over the seconds in which the unit has samples.

    Parameters
    ----------
    values
        Shape (n_units, n_steps), one window, NaN = missing.

    Returns
    -------
    tuple
        Own mean, mean of the others' low median, mean of their high median, each of shape
        (n_units,). NaN for a unit that has samples in less than half of the steps in which
        anybody has some.
    """
    low, high = others_medians(values)
    usable = np.isfinite(low)
    count = usable.sum(axis=1)
    seen = int(np.isfinite(values).any(axis=0).sum())
    enough = count >= max(1, seen // 2)
    total = np.where(enough, count, np.nan)
    own, low_mean, high_mean = (
        np.where(usable, part, 0).sum(axis=1, dtype=np.float64) / total
        for part in (values, low, high)
    )
    return own, low_mean, high_mean
