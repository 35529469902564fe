"""Where something holds without a break."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def runs(marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where every run of marked places starts and ends.

    Parameters
    ----------
    marked
        Shape (n_places,).

    Returns
    -------
    ndarray
        Shape (n_runs, 2), in order; the end is the place behind the last one.
    """
    padded = np.zeros(len(marked) + 2, dtype=np.bool_)
    padded[1:-1] = marked
    # By turns one begins and one ends. ``np.diff`` takes twice as long.
    return np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2)
