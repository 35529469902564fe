"""Sums of Euclidean distances from points to others, compiled.

A distance is a float32 of differences, as exact as the points; the sums are float64. Where a
point is measured against all, each pair is measured twice, once from either end: so every point
adds up its distances in the same order, equal points have equal sums, and a tie stays a tie. It is
also what a processor does fastest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import numerical

# The features of the models' default window; their loop is written out.
_WRITTEN_OUT = 8
# Points whose distances to one point are held at a time.
_TILE = 512


@numerical
def distance_sums(columns: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sum the distances of every point to some others, or to all.

    Parameters
    ----------
    columns, others
        Shape (n_features, n_points), finite.

    Returns
    -------
    NDArray[np.float64]
        Shape (n_points,), of ``columns``.
    """
    sums = np.zeros(columns.shape[1], np.float64)
    if len(columns) == _WRITTEN_OUT:
        _eight(columns, others, sums)
    else:
        _any(columns, others, sums)
    return sums


@numerical
def _eight(
    columns: NDArray[np.float32], others: NDArray[np.float32], sums: NDArray[np.float64]
) -> None:
    x0, x1, x2, x3 = others[0], others[1], others[2], others[3]
    x4, x5, x6, x7 = others[4], others[5], others[6], others[7]
    for point in range(len(sums)):
        a0, a1, a2, a3 = columns[0, point], columns[1, point], columns[2, point], columns[3, point]
        a4, a5, a6, a7 = columns[4, point], columns[5, point], columns[6, point], columns[7, point]
        total = 0.0
        for other in range(len(x0)):
            d0, d1, d2, d3 = a0 - x0[other], a1 - x1[other], a2 - x2[other], a3 - x3[other]
            d4, d5, d6, d7 = a4 - x4[other], a5 - x5[other], a6 - x6[other], a7 - x7[other]
            half = d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3
            total += np.float64(np.sqrt(half + (d4 * d4 + d5 * d5 + d6 * d6 + d7 * d7)))
        sums[point] = total


@numerical
def _any(
    columns: NDArray[np.float32], others: NDArray[np.float32], sums: NDArray[np.float64]
) -> None:
    squares = np.empty(_TILE, np.float32)
    for start in range(0, others.shape[1], _TILE):
        size = min(_TILE, others.shape[1] - start)
        for point in range(len(sums)):
            squares[:] = 0
            for feature in range(len(columns)):
                here, row = columns[feature, point], others[feature][start : start + size]
                for other in range(size):
                    apart = here - row[other]
                    squares[other] += apart * apart
            total = 0.0
            for other in range(size):
                total += np.float64(np.sqrt(squares[other]))
            sums[point] += total
