"""Samples turned over, from a row for each unit to a row for each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# So many rows are turned over at once: of more the processor cannot keep in mind where they lie,
# which takes seven times as long for 12,500 rows of a history of 900 samples.
_ROWS_AT_ONCE = 512


def turned(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a row for each column, C-contiguous, in memory of its own; shape (n_columns, n_rows).

    Parameters
    ----------
    values
        Shape (n_rows, n_columns).
    """
    found = np.empty(values.shape[::-1], np.float32)
    for first in range(0, len(values), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        found[:, part] = values[part].T
    return found
