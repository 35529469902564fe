"""From samples of any resolution to whole seconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.methods.peerwatch.peers import Levels


def whole_seconds(
    times: NDArray[np.float64], levels: Levels, per_second: int
) -> tuple[NDArray[np.int64], Levels]:
    """Return the seconds that lie whole within the times, and the mean level in each.

    Parameters
    ----------
    times, levels
        Unix seconds of samples, rising, and their values, shape (n_samples,); NaN = no sample.
    per_second
        Samples in a second.
    """
    samples = np.rint(times * per_second).astype(np.int64)
    if per_second == 1 or not len(samples):
        return samples, levels
    first, after = -(-int(samples[0]) // per_second), (int(samples[-1]) + 1) // per_second
    seconds = np.arange(first, after)
    place = samples // per_second - first
    counted = np.isfinite(levels) & (place >= 0) & (place < len(seconds))
    count = np.bincount(place[counted], minlength=len(seconds))
    total = np.bincount(place[counted], levels[counted], minlength=len(seconds))
    return seconds, np.divide(total, count, out=np.full(len(seconds), np.nan), where=count > 0)
