"""How much of its time a job loses to iterations that take longer than usual."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# An iteration that takes this many times the mean is slow (Aegis, section 5.2: T_S).
SLOW_ITERATION = 1.2


def degradation(seconds: NDArray[np.float64]) -> float:
    """Return the degradation P_deg of Aegis, 0 to 1: time beyond the slow limit, of all time.

    Parameters
    ----------
    seconds
        Duration of each iteration, shape (iterations,).
    """
    total = float(seconds.sum())
    if not total:
        return 0.0
    slow = SLOW_ITERATION * float(seconds.mean())
    return float(np.clip(seconds - slow, 0.0, None).sum()) / total
