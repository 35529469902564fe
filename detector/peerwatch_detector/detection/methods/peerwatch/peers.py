"""What the other nodes do: leave-one-out medians, second by second.

A node is compared in just the seconds in which it has samples itself: training has a rhythm of
seconds, and a mean over other seconds than the peers' would see that rhythm as a deviation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.ranked import ranked
from peerwatch_detector.detection.methods.peerwatch.turned import turned

Levels = NDArray[np.float64]

# A large job's history is not copied at once.
_STEPS_AT_A_TIME = 64


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
    parts = range(0, max(1, values.shape[1]), _STEPS_AT_A_TIME)
    return np.concatenate(
        [_medians(values[:, first : first + _STEPS_AT_A_TIME]) for first in parts]
    )


def _medians(values: NDArray[np.float32]) -> Levels:
    steps = turned(values)
    count = np.isfinite(steps).sum(axis=1)
    both = ranked(steps, (count - 1) // 2, 2).astype(np.float64)
    # Of an odd number the one in the middle is both.
    medians: Levels = (both[:, 0] + both[np.arange(len(both)), 1 - count % 2]) / 2
    return medians


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
    steps = turned(values)
    known = np.isfinite(steps)
    others = known.sum(axis=1) - 1
    totals, count = np.zeros((3, len(values))), np.zeros(len(values), dtype=np.int64)
    add = _add_up if compiled.ready() else _add_up_in_numpy
    add(steps, np.sort(steps, axis=1), others, totals, count)
    enough = count >= max(1, int((others >= 0).sum()) // 2)
    own, low, high = totals / np.where(enough & (count > 0), count, np.nan)
    return own, low, high


@compiled.numerical
def _add_up(
    steps: NDArray[np.float32],
    ranked: NDArray[np.float32],
    others: NDArray[np.int64],
    totals: Levels,
    count: NDArray[np.int64],
) -> None:
    """Add up what ``compare`` averages.

    Parameters
    ----------
    steps, ranked
        Shape (n_steps, n_units); ``ranked`` in order within every step, NaN last.
    others
        How many others a unit with a sample has, shape (n_steps,).
    totals
        Added to: own values and the others' low and high medians, shape (3, n_units).
    count
        Added to: usable steps, shape (n_units,).
    """
    own, lows, highs = totals[0], totals[1], totals[2]
    for step in range(len(steps)):
        if others[step] < 1:
            continue
        low, high = (others[step] - 1) // 2, others[step] // 2
        # Without the unit, all that is above it in order moves down by one place.
        low_here, low_next = ranked[step, low], ranked[step, low + 1]
        high_here, high_next = ranked[step, high], ranked[step, high + 1]
        row = steps[step]
        for unit in range(len(row)):
            value = row[unit]
            if np.isfinite(value):
                own[unit] += value
                lows[unit] += low_here if value > low_here else low_next
                highs[unit] += high_here if value > high_here else high_next
                count[unit] += 1


def _add_up_in_numpy(
    steps: NDArray[np.float32],
    ranked: NDArray[np.float32],
    others: NDArray[np.int64],
    totals: Levels,
    count: NDArray[np.int64],
) -> None:
    """Do the same as ``_add_up``, where nothing can be compiled."""
    rows = np.flatnonzero(others >= 1)
    steps, ranked, others = steps[rows], ranked[rows], others[rows]
    usable = np.isfinite(steps)
    count += usable.sum(axis=0)
    parts = [steps]
    for place in ((others - 1) // 2, others // 2):
        here, following = (ranked[np.arange(len(rows)), place + k, None] for k in (0, 1))
        parts.append(np.where(steps > here, here, following))
    totals += [np.where(usable, part, 0).sum(axis=0, dtype=np.float64) for part in parts]
