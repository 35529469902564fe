"""Whether no unit of a metric comes near a deviation at a step, which is so nearly always.

Distances are logarithms of ratios. That a ratio is smaller than another needs no logarithm, so one
compiled pass over the samples excludes, with a margin far above its rounding, whatever could count.
Only where something could is every unit compared by ``effects.deviate``, which alone says by how
much. Samples without the units' offsets, and what lies about their median, are shared by the
steps for which the same is normal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.peers import Levels
from peerwatch_detector.detection.methods.peerwatch.ranked import ranked
from peerwatch_detector.detection.methods.peerwatch.turned import turned

Samples = NDArray[np.float32]
# Samples without offsets, step by step; of every step the values about the median; how many others
# a unit with a sample has.
Window = tuple[Samples, Samples, NDArray[np.int64]]

Masks = NDArray[np.bool_]

# So many steps are turned over at once, from one row for each unit to one row for each step.
_TURNED_AT_ONCE = 64
# What is less than this share below the limit is compared, too.
_MARGIN = 1e-6
# What is found of a unit.
_UNKNOWN, _KNOWN, _BEYOND = 0, 1, 2


class Corrected:
    """The newest samples of some units without their usual offsets, as steps share them."""

    def __init__(self) -> None:
        self._usual: Usual | None = None
        self._columns = slice(0, 0)
        # None yet, not even those of an empty slice.
        self._turned_columns = slice(-1, -1)
        self._turned: Samples = np.empty((0, 0), np.float32)
        self._steps: Samples = self._turned
        self._ranked: Samples = self._turned
        self._others: NDArray[np.int64] = np.empty(0, np.int64)

    def window(self, units: Samples, columns: slice, until: int, usual: Usual) -> Window:
        """Return some samples.

        Parameters
        ----------
        units
            Shape (n_units, n_columns), NaN = missing; the same at every call.
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
            turned = self._turned_over(units, held)
            self._steps = np.empty(turned.shape, np.float32)
            self._others = np.full(len(turned), -1)
            _correct(turned, usual.factor, self._steps, self._others)
            self._ranked = about_median(self._steps, self._others)
        rows = slice(columns.start - held.start, columns.stop - held.start)
        return self._steps[rows], self._ranked[rows], self._others[rows]

    def rows(self, units: Samples, columns: Sequence[int]) -> Samples:
        """Return some columns as they are, as rows; units as for ``window``."""
        held = self._turned_columns
        if min(columns) < held.start or max(columns) >= held.stop:
            return turned(units[:, columns])
        return self._turned[[column - held.start for column in columns]]

    def _turned_over(self, units: Samples, columns: slice) -> Samples:
        """Return some columns as rows."""
        held = self._turned_columns
        if columns.start < held.start or columns.stop > held.stop:
            stop = max(columns.stop, min(columns.start + _TURNED_AT_ONCE, units.shape[1]))
            self._turned_columns = held = slice(columns.start, stop)
            self._turned = turned(units[:, held])
        return self._turned[columns.start - held.start : columns.stop - held.start]

    def forget(self) -> None:
        """Give the memory back."""
        self.__init__()  # type: ignore[misc]


@compiled.numerical
def _correct(turned: Samples, factor: Levels, steps: Samples, others: NDArray[np.int64]) -> None:
    """Write the units' values times their factors, step by step, and count who has one."""
    for step in range(len(turned)):
        known = np.int32(0)
        for unit in range(turned.shape[1]):
            value = np.float32(turned[step, unit] * factor[unit])
            steps[step, unit] = value
            known += np.int32(abs(value) < np.inf)
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


def screen(window: Window, spans: NDArray[np.int64], floors: Levels, limit: float) -> Masks:
    """Return about whom anything is known, for the first steps at which nobody is near a limit.

    Parameters
    ----------
    window
        From ``Corrected``, for all steps.
    spans
        Where in it the samples of each step begin and end, shape (n_steps, 2).
    floors
        Of each step: added to levels before their logarithm is taken.
    limit
        Distance from the peers, as a logarithm.

    Returns
    -------
    Masks
        Shape (n_found, n_units): it ends before the first step at which not all who are known are
        within the limit, or it cannot be told.
    """
    samples, ranked, others = window
    known = np.zeros((len(spans), samples.shape[1]), np.bool_)
    up = np.exp(limit * (1 - _MARGIN))
    return known[: _within(samples, ranked, others, spans, floors, float(up), known)]


@compiled.numerical
def _within(
    samples: Samples,
    ranked: Samples,
    others: NDArray[np.int64],
    spans: NDArray[np.int64],
    floors: Levels,
    up: float,
    known: Masks,
) -> int:
    """Average as ``peers.compare`` does, compare the ratios, and return how many steps pass."""
    own = np.empty(samples.shape[1])
    for step in range(len(spans)):
        first, after = spans[step]
        present, counted, lowest, highest = 0, 0, 0.0, 0.0
        own[:] = 0
        for row in range(first, after):
            present += others[row] >= 0
            if others[row] < 1:
                continue
            counted += 1
            # Whoever it is, the medians of the others lie between these two.
            lowest += ranked[row, 0]
            highest += ranked[row, 2 - others[row] % 2]
            for unit in range(len(own)):
                own[unit] += samples[row, unit]
        least = max(1, present // 2)
        if counted >= least:
            share, floor = 1 / counted, floors[step]
            under = (max(lowest * share, 0.0) + floor) * up
            over = (max(highest * share, 0.0) + floor) / up
            for unit in range(len(own)):
                # NaN, where any sample is missing, is neither.
                level = own[unit] * share
                level = (0.0 if level < 0 else level) + floor
                known[step, unit] = (level < under) & (level > over)
        for unit in range(len(own)):
            if not known[step, unit]:
                part = (first, after, unit, least)
                found = _measure(samples, ranked, others, part, floors[step], up)
                if found == _BEYOND:
                    return step
                known[step, unit] = found == _KNOWN
    return len(spans)


@compiled.numerical
def _measure(
    samples: Samples,
    ranked: Samples,
    others: NDArray[np.int64],
    part: tuple[int, int, int, int],
    floor: float,
    up: float,
) -> int:
    """Compare one unit in just the seconds in which it has samples, so many at least."""
    first, after, unit, least = part
    own, low, high, count = 0.0, 0.0, 0.0, 0
    for row in range(first, after):
        value = samples[row, unit]
        if others[row] < 1 or not abs(value) < np.inf:
            continue
        count += 1
        # Without the unit, all that is above it in order moves down by one place.
        even = 1 - others[row] % 2
        own += value
        low += ranked[row, 0] if value > ranked[row, 0] else ranked[row, 1]
        high += ranked[row, even] if value > ranked[row, even] else ranked[row, even + 1]
    if count < least:
        return _UNKNOWN
    own, low = max(own / count, 0.0) + floor, max(low / count, 0.0) + floor
    high = max(high / count, 0.0) + floor
    # Written so that NaN is not within.
    within = own < low * up and low < own * up and own < high * up and high < own * up
    return _KNOWN if within else _BEYOND
