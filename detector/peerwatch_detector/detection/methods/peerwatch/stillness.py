"""For how long hardware has done next to nothing that worked within the last hour.

Beside the phase, which asks what is usual in ten minutes: after eight minutes of standing still, to
stand still is.
"""

from __future__ import annotations

import numpy as np

from peerwatch_detector.detection.methods.peerwatch.peers import Levels
from peerwatch_detector.detection.methods.peerwatch.phase import PRESENT_SECONDS

# What it showed at work: it may be as little as a minute of the hour that is remembered.
_WORK_QUANTILE = 0.98
# What is shorter the phase tells better: it knows the lulls of iterations.
_LEAST_SECONDS = 300


def still_seconds(levels: Levels, floor: float, share: float) -> float | None:
    """Return for how long a level has been next to nothing; None where it is not, or never worked.

    Parameters
    ----------
    levels
        Second by second up to now; NaN = no sample.
    floor
        What stays below it tells nothing.
    share
        Below this share of what it showed at work, it does next to nothing.
    """
    known = levels[np.isfinite(levels)]
    if not np.isfinite(levels[-PRESENT_SECONDS:]).any():
        return None
    work = float(np.quantile(known, _WORK_QUANTILE))
    if work < floor:
        return None
    worked = levels >= share * work
    # A second now and then in which something runs is no work.
    count = len(levels) // PRESENT_SECONDS
    blocks = worked[len(levels) - count * PRESENT_SECONDS :].reshape(count, PRESENT_SECONDS)
    at_work = np.flatnonzero(2 * blocks.sum(axis=1) >= PRESENT_SECONDS)
    if not len(at_work):
        return None
    end = len(levels) - (count - 1 - int(at_work[-1])) * PRESENT_SECONDS
    # The work may have ended within the block that follows.
    end += int(np.argmin(np.append(worked[end:], False)))
    still = float(len(levels) - 1 - np.flatnonzero(worked[:end])[-1])
    return still if still >= _LEAST_SECONDS else None
