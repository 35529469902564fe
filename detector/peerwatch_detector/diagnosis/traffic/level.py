"""A job's level of traffic against its own usual one, and how long it usually pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.methods.peerwatch.step_rate import low_runs

# The usual level is this quantile of the hour's: one that was low for less than three quarters of
# it is compared with what it was before.
_USUAL_QUANTILE = 0.75
# A job that has just begun loads and compiles. Chosen: two means of a minute.
_WARM_UP_SECONDS = 120.0
# So much of the past makes a usual level. Chosen: ten means of a minute, and as long as the longest
# pause that is ordinary.
LEAST_SECONDS = 600.0
# Below this share traffic has fallen, below that it has stopped: keep-alives go on. Chosen: where
# MegaScale says "sharply", steps of twice the length; keep-alives send less than a twentieth.
FALLEN_SHARE, STOPPED_SHARE = 0.5, 0.05
# A pause is unusual once it is so many times as long as the longest the job came back from (chosen:
# the next checkpoint may take half as long again); none is ordinary that is as long as a stalled
# job's (the alert PeerwatchJobStalled).
_TIMES_LONGER, LONGEST_PAUSE = 1.5, 600.0


@dataclass(frozen=True, slots=True)
class Level:
    """A job's level of traffic.

    Parameters
    ----------
    usual
        In bytes per second.
    ratio
        The present level as a share of it.
    low_seconds
        For how long it has been low; 0 = it is not.
    pause_seconds
        For how long it is ordinarily low, as far as pauses were seen.
    """

    usual: float
    ratio: float
    low_seconds: float
    pause_seconds: float


def level(
    levels: NDArray[np.float64], step_seconds: float, mean_seconds: float, floor: float
) -> Level | None:
    """Return a job's level of traffic.

    Parameters
    ----------
    levels
        Of the past hour up to now, shape (n_steps,); NaN = not known.
    step_seconds
        Time between two of them.
    mean_seconds
        A level is the mean of so long: whole periods, so that lulls of a step do not count.
    floor
        Below this usual level nothing can be said.

    Returns
    -------
    Level | None
        None while too little is known, and of a job that hardly sends.
    """
    known = np.flatnonzero(np.isfinite(levels))
    if not len(known):
        return None
    first = known[0] + round(_WARM_UP_SECONDS / step_seconds)
    means = _moving_mean(levels[first:], max(1, round(mean_seconds / step_seconds)))
    counted = means[np.isfinite(means)]
    if len(counted) * step_seconds < LEAST_SECONDS or not np.isfinite(means[-1]):
        return None
    usual = float(np.quantile(counted, _USUAL_QUANTILE))
    if usual < floor:
        return None
    runs = low_runs(counted, FALLEN_SHARE * usual)
    lengths = (runs[:, 1] - runs[:, 0]) * step_seconds
    lasts = len(runs) > 0 and int(runs[-1, 1]) == len(counted)
    ended = lengths[:-1] if lasts else lengths
    pause = min(LONGEST_PAUSE, _TIMES_LONGER * float(ended.max(initial=0.0)))
    low = float(lengths[-1]) if lasts else 0.0
    return Level(usual, float(means[-1]) / usual, low, pause)


def _moving_mean(levels: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Return the mean of the steps up to each; NaN where less than half of them is known."""
    if len(levels) < length:
        return np.empty(0)
    known = np.isfinite(levels)
    total, count = (
        np.concatenate(([0.0], np.cumsum(each)))
        for each in (np.where(known, levels, 0.0), known.astype(np.float64))
    )
    total, count = total[length:] - total[:-length], count[length:] - count[:-length]
    # A difference of large sums may be a little below nothing.
    means = np.full(len(count), np.nan)
    np.divide(np.maximum(total, 0.0), count, out=means, where=2 * count >= length)
    return means
