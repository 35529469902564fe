"""A few neighbouring values of every row in order of size, found without sorting the row.

Counting how many values are smaller takes a fraction of what sorting takes. Where a value of the
row before lies, that of the next one is near: some ten counts find it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled

Samples = NDArray[np.float32]

# Floats in order are whole numbers in order once those below zero are turned over; NaN is the last.
_TURNED = np.int32(0x7FFFFFFF)
_INFINITE = np.int32(0x7F800000)
_UNKNOWN = _TURNED
_SMALLEST = np.int32(-0x80000000)
# Counted in float32, which takes half as long and is exact up to 16 million.
_ONE, _NONE = np.float32(1), np.float32(0)
# How far the value is searched at first, and how many counts may pass without halving what is left.
_NEAR, _PATIENCE = 1 << 20, 4


def ranked(rows: Samples, places: NDArray[np.integer], count: int) -> Samples:
    """Return some values of every row in order of size.

    Parameters
    ----------
    rows
        Shape (n_rows, n_columns), C-contiguous, NaN = unknown, which are the largest.
    places
        Of the first value wanted in each row, shape (n_rows,); below 0 for none. There is a value
        at that place.
    count
        How many are wanted.

    Returns
    -------
    Samples
        Shape (n_rows, count), NaN where there are fewer.
    """
    if compiled.ready():
        found = np.full((len(rows), count), _UNKNOWN)
        _find(rows.view(np.int32), places.astype(np.int64), found)
        return np.where(found < 0, found ^ _TURNED, found).view(np.float32)
    ordered = np.sort(rows, axis=1)
    wanted = np.maximum(places, 0)[:, None] + np.arange(count)
    last = max(0, rows.shape[1] - 1)
    values = np.take_along_axis(ordered, np.minimum(wanted, last), axis=1)
    return np.where((places[:, None] >= 0) & (wanted <= last), values, np.float32(np.nan))


@compiled.numerical
def _find(rows: NDArray[np.int32], places: NDArray[np.int64], found: NDArray[np.int32]) -> None:
    """Fill in the values of the rows, given as the bits of float32; those below zero turned over.

    Parameters
    ----------
    rows, places
        As for ``ranked``.
    found
        Shape (n_rows, count); left as it is for rows of which none is wanted.
    """
    numbers = np.empty(rows.shape[1], np.int32)
    near = np.int64(0)
    for row in range(len(rows)):
        place = places[row]
        if place < 0:
            continue
        for column in range(len(numbers)):
            bits = rows[row, column]
            known = (bits & _TURNED) <= _INFINITE
            numbers[column] = bits ^ ((bits >> 31) & _TURNED) if known else _UNKNOWN
        # At most ``place`` numbers are below ``low``, and more than that below ``high``.
        low, below_low = np.int64(_SMALLEST), 0
        high, below_high = np.int64(_UNKNOWN), len(numbers)
        guess, reach, tries = near, np.int64(_NEAR), 0
        while below_high - below_low > found.shape[1] and high - low > 1:
            below = _how_many_below(numbers, np.int32(guess))
            if below <= place:
                low, below_low = guess, below
            else:
                high, below_high = guess, below
            tries += 1
            if high == _UNKNOWN:
                guess = min(low + reach, high - 1)
                reach *= 4
            elif low == _SMALLEST:
                guess = max(high - reach, low + 1)
                reach *= 4
            elif tries % _PATIENCE == 0:
                guess = (low + high) // 2
            else:
                share = 2 * (place - below_low) + 1
                guess = low + (high - low) * share // (2 * (below_high - below_low))
                guess = min(max(guess, low + 1), high - 1)
        near = low
        following = _least(numbers, np.int32(low))
        up_to = _how_many_up_to(numbers, following)
        for wanted in range(found.shape[1]):
            # Those that are equal count once each.
            while up_to <= place + wanted and following < _UNKNOWN:
                following = _least(numbers, following + np.int32(1))
                up_to = _how_many_up_to(numbers, following)
            found[row, wanted] = following


@compiled.inlined
def _least(numbers: NDArray[np.int32], limit: np.int32) -> np.int32:
    """Return the smallest number from a limit on."""
    smallest = _UNKNOWN
    for number in numbers:
        smallest = min(smallest, number if number >= limit else _UNKNOWN)
    return smallest


@compiled.inlined
def _how_many_below(numbers: NDArray[np.int32], limit: np.int32) -> int:
    """Return how many numbers are below a limit."""
    count = _NONE
    for number in numbers:
        count += _ONE if number < limit else _NONE
    return int(count)


@compiled.inlined
def _how_many_up_to(numbers: NDArray[np.int32], limit: np.int32) -> int:
    """Return how many numbers are no larger than a limit."""
    count = _NONE
    for number in numbers:
        count += _ONE if number <= limit else _NONE
    return int(count)
