"""The median of every row of samples of which few change from one time to the next.

A median that is known from before is near the new one: counting says how many places it is off,
and it moves by as many values. That takes a fraction of what sorting takes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection.methods.peerwatch.peers import Levels
from peerwatch_detector.detection.methods.peerwatch.rows import row_median

# Floats in order are whole numbers in order once those below zero are turned over.
_TURNED = np.int32(0x7FFFFFFF)
_INFINITE = np.int32(0x7F800000)
_UNKNOWN = _TURNED
_SMALLEST = np.int32(-0x80000000)
_ONE, _NONE = np.float32(1), np.float32(0)


class RunningMedians:
    """Medians of rows, each found from the one before."""

    def __init__(self) -> None:
        self._newest: NDArray[np.int32] = np.empty(0, np.int32)

    def of(self, values: NDArray[np.float32], without: NDArray[np.integer], least: int) -> Levels:
        """Return the median of the finite values of every row.

        Parameters
        ----------
        values
            Shape (n_rows, n_columns), NaN = unknown.
        without
            Columns that do not count.
        least
            Finite values a row must have, at least one; with fewer its median is NaN.

        Returns
        -------
        Levels
            Shape (n_rows,).
        """
        if not compiled.ready():
            counted = values.copy()
            counted[:, without] = np.nan
            known = np.isfinite(counted).sum(axis=1) >= least
            return np.where(known, row_median(counted), np.nan)
        if len(self._newest) != len(values):
            self._newest = np.zeros(len(values), np.int32)
        middle = np.full(len(values), np.nan)
        _find(values.view(np.int32), without.astype(np.int64), least, self._newest, middle)
        return middle


@compiled.numerical
def _find(
    values: NDArray[np.int32],
    without: NDArray[np.int64],
    least: int,
    newest: NDArray[np.int32],
    medians: Levels,
) -> None:
    """Fill in the median of every row.

    Parameters
    ----------
    values
        The bits of float32, shape (n_rows, n_columns).
    without, least
        As for ``RunningMedians.of``.
    newest
        A value near the median, shape (n_rows,); the lower middle value afterwards.
    medians
        Shape (n_rows,); left as it is where too few values are known.
    """
    numbers = np.empty(values.shape[1], np.int32)
    for row in range(len(values)):
        for column in range(len(numbers)):
            bits = values[row, column]
            finite = (bits & _TURNED) < _INFINITE
            numbers[column] = bits ^ ((bits >> 31) & _TURNED) if finite else _UNKNOWN
        for column in without:
            numbers[column] = _UNKNOWN
        middle = newest[row]
        # Whole numbers in float32 are exact, and counted twice as fast.
        known, smaller, alike = _NONE, _NONE, _NONE
        for number in numbers:
            known += _ONE if number != _UNKNOWN else _NONE
            smaller += _ONE if number < middle else _NONE
            alike += _ONE if number == middle else _NONE
        count, below, equal = int(known), int(smaller), int(alike)
        if count < least:
            continue
        place = (count - 1) // 2
        while below > place:
            middle = _next_below(numbers, middle)
            equal = _how_many(numbers, middle)
            below -= equal
        while below + equal <= place:
            middle = _next_above(numbers, middle)
            below += equal
            equal = _how_many(numbers, middle)
        newest[row] = upper = middle
        if below + equal <= count // 2:
            upper = _next_above(numbers, middle)
        medians[row] = (np.float64(_as_float(middle)) + np.float64(_as_float(upper))) / 2


@compiled.compiled
def _as_float(number: np.int32) -> np.float32:
    """Return the float32 that a number stands for."""
    return np.int32(number ^ _TURNED if number < 0 else number).view(np.float32)


@compiled.inlined
def _next_below(numbers: NDArray[np.int32], limit: np.int32) -> np.int32:
    """Return the largest number below a limit."""
    largest = _SMALLEST
    for number in numbers:
        largest = max(largest, number if number < limit else _SMALLEST)
    return largest


@compiled.inlined
def _next_above(numbers: NDArray[np.int32], limit: np.int32) -> np.int32:
    """Return the smallest number above a limit."""
    smallest = _UNKNOWN
    for number in numbers:
        smallest = min(smallest, number if number > limit else _UNKNOWN)
    return smallest


@compiled.inlined
def _how_many(numbers: NDArray[np.int32], value: np.int32) -> int:
    """Return how many numbers equal a value."""
    count = _NONE
    for number in numbers:
        count += _ONE if number == value else _NONE
    return int(count)
