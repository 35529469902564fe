"""Whether no unit of a metric comes near a deviation at a step, which is so nearly always.

Distances are logarithms of ratios. That a ratio is smaller than another needs no logarithm, so one
compiled pass over the samples excludes, with a margin far above its rounding, whatever could count.
Only where something could is every unit compared by ``effects.deviate``, which alone says by how
much. Samples without the units' offsets, and what lies about their median, are shared by the
steps for which the same is normal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.peers import Levels
from peerwatch_detector.detection.methods.peerwatch.ranked import ranked
from peerwatch_detector.detection.similarity import Mask

Samples = NDArray[np.float32]

_UNITS_AT_A_TIME = 64
# What is less than this share below the limit is compared, too.
_MARGIN = 1e-6


class Corrected:
    """The newest samples of some units without their usual offsets, as steps share them."""

    def __init__(self) -> None:
        self._usual: Usual | None = None
        self._columns = slice(0, 0)
        self._steps: Samples = np.empty((0, 0), np.float32)
        self._ranked: Samples = self._steps
        self._others: NDArray[np.int64] = np.empty(0, np.int64)

    def window(
        self, units: Samples, columns: slice, until: int, usual: Usual
    ) -> tuple[Samples, Samples, NDArray[np.int64]]:
        """Return some samples.

        Parameters
        ----------
        units
            Shape (n_units, n_columns), NaN = missing.
        columns
            Which are asked for.
        until
            Those before this one will be asked for, too, while the same is normal.
        usual
            What is normal.

        Returns
        -------
        tuple
            Without offsets, shape (n_steps, n_units); of every step the three values from the low
            median of all others but the largest on, in order, shape (n_steps, 3); and how many
            others a unit with a sample has, -1 if nobody has one, shape (n_steps,).
        """
        held = self._columns
        if usual is not self._usual or columns.start < held.start or columns.stop > held.stop:
            self._usual = usual
            self._columns = held = slice(columns.start, max(columns.stop, until))
            part = units[:, held]
            self._steps = np.empty(part.shape[::-1], np.float32)
            self._others = np.full(len(self._steps), -1)
            _correct(part, usual.factor, self._steps, self._others)
            self._ranked = about_median(self._steps, self._others)
        rows = slice(columns.start - held.start, columns.stop - held.start)
        return self._steps[rows], self._ranked[rows], self._others[rows]

    def forget(self) -> None:
        """Give the memory back."""
        self.__init__()  # type: ignore[misc]


@compiled.compiled
def _correct(units: Samples, factor: Levels, steps: Samples, others: NDArray[np.int64]) -> None:
    """Write the units' values times their factors, step by step, and count who has one."""
    # So many units' samples stay in the processor's cache while they are turned over.
    for first in range(0, units.shape[0], _UNITS_AT_A_TIME):
        after = min(units.shape[0], first + _UNITS_AT_A_TIME)
        for step in range(units.shape[1]):
            known = 0
            for unit in range(first, after):
                value = np.float32(units[unit, step] * factor[unit])
                steps[step, unit] = value
                known += int(abs(value) < np.inf)
            others[step] += known


def about_median(steps: Samples, others: NDArray[np.int64]) -> Samples:
    """Return three values of every step, in order: those about the median of all but one unit.

    Parameters
    ----------
    steps
        Shape (n_steps, n_units), NaN = missing.
    others
        Units with a value less one, shape (n_steps,).

    Returns
    -------
    NDArray[np.float32]
        Shape (n_steps, 3), from place (others - 1) // 2 on; NaN where there are fewer.
    """
    return ranked(steps, np.where(others >= 1, (others - 1) // 2, -1), 3)


def screen(
    window: tuple[Samples, Samples, NDArray[np.int64]], floor: float, limit: float
) -> Mask | None:
    """Return about whom anything is known if nobody is near a limit, else None.

    Parameters
    ----------
    window
        From ``Corrected``.
    floor
        Added to levels before their logarithm is taken.
    limit
        Distance from the peers, as a logarithm.

    Returns
    -------
    Mask | None
        Shape (n_units,); None = not all who are known are within the limit, or it cannot be told.
    """
    steps, ranked, others = window
    known = np.zeros(steps.shape[1], np.bool_)
    totals = np.zeros((3, len(known)))
    count = np.zeros(len(known), np.int64)
    within = _within(steps, ranked, others, totals, count, known, floor, limit * (1 - _MARGIN))
    return known if within else None


@compiled.numerical
def _within(
    steps: Samples,
    ranked: Samples,
    others: NDArray[np.int64],
    totals: Levels,
    count: NDArray[np.int64],
    known: Mask,
    floor: float,
    limit: float,
) -> bool:
    """Average as ``peers.compare`` does, into ``totals`` and ``count``, and compare the ratios."""
    own, lows, highs = totals[0], totals[1], totals[2]
    present = 0
    for step in range(len(steps)):
        if others[step] >= 0:
            present += 1
        if others[step] < 1:
            continue
        # Without the unit, all that is above it in order moves down by one place.
        low_here, low_next = ranked[step, 0], ranked[step, 1]
        even = 1 - others[step] % 2
        high_here, high_next = ranked[step, even], ranked[step, even + 1]
        row = steps[step]
        for unit in range(len(row)):
            value = row[unit]
            has = abs(value) < np.inf
            own[unit] += value if has else np.float32(0)
            low = low_here if value > low_here else low_next
            high = high_here if value > high_here else high_next
            lows[unit] += low if has else np.float32(0)
            highs[unit] += high if has else np.float32(0)
            count[unit] += has
    least = max(1, present // 2)
    up = np.exp(limit)
    for unit in range(len(known)):
        if count[unit] < least:
            continue
        share = 1 / count[unit]
        level = max(own[unit] * share, 0.0) + floor
        low, high = max(lows[unit] * share, 0.0) + floor, max(highs[unit] * share, 0.0) + floor
        # Written so that NaN is not within.
        if not (level < low * up and low < level * up and level < high * up and high < level * up):
            return False
        known[unit] = True
    return True
