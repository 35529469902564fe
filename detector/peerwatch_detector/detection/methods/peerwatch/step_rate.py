"""How fast a job goes, told apart from how often it pauses.

An iteration of some seconds has seconds of its own in which next to nothing is computed: its ranks
exchange gradients, or wait for the slowest of them. They recur with every iteration and belong to
the step rate; a slower rank makes just these longer. Checkpoints and stalls come less often, and
say nothing about the step rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.runs import runs

# Lulls that recur more often than once in so many seconds belong to the iteration: no checkpoint is
# taken every minute.
_RECURS_SECONDS = 60
# Lulls vary, most of all those about as long as a sample, so a factor of two is left to them; what
# is longer is a pause.
_LULLS = 2
# A pause is unusually long once it is so many times as long as the longest that the job has come
# back from: rank 0 that writes a checkpoint is busy while the others wait, too. None is ordinary
# that is as long as a stalled job's (the alert PeerwatchJobStalled).
_PAUSES, _LONGEST_PAUSE = 1.5, 600.0
# Near both ends so many seconds, about a long iteration, count less and less, so that half an
# iteration more or less there changes nothing.
_EDGE_SECONDS = 20
# A time is looked at in so many parts: thirds of four minutes hold iterations enough, and an
# evaluation rarely falls into more than one.
_PARTS = 3
# What the job does is told by means over so many seconds, longer than an iteration. It does other
# work than training while its traffic is below this share of usual for as much computing: an
# evaluation of data-parallel ranks sends no gradients, and a slower job sends them more slowly, but
# all of them.
_MIX_SECONDS, _MIX_SHARE = 30, 0.5
# Other work that takes longer is what the job does: the longest evaluations take minutes.
_LONGEST_OTHER = 600


def usual_lull(levels: NDArray[np.float64], low_below: float) -> int:
    """Return for how many seconds an iteration makes next to no progress.

    Parameters
    ----------
    levels
        Progress second by second; NaN = not known.
    low_below
        Next to no progress, in the same unit.

    Returns
    -------
    int
        The longest lull but for one a minute, which may be a pause; 0 = iterations have none.
    """
    return _usual(low_runs(levels, low_below), int(np.isfinite(levels).sum()))


def ordinary_pause(levels: NDArray[np.float64], low_below: float, least_seconds: float) -> float:
    """Return how many seconds of next to no progress are no more than the job comes back from.

    Parameters
    ----------
    levels, low_below
        As for ``usual_lull``.
    least_seconds
        So long is ordinary in any job.
    """
    known = levels[np.isfinite(levels)]
    ended = [end - start for start, end in low_runs(known, low_below) if end < len(known)]
    return max(least_seconds, min(_LONGEST_PAUSE, _PAUSES * max(ended, default=0)))


def low_runs(levels: NDArray[np.float64], low_below: float) -> NDArray[np.int64]:
    """Return where every run of next to no progress starts and ends, shape (n_runs, 2)."""
    return runs(levels < low_below)


def other_work(
    levels: NDArray[np.float64], traffic: NDArray[np.float64], low_below: float
) -> NDArray[np.bool_]:
    """Mark the seconds in which a job computes without the traffic that goes with it in training.

    Parameters
    ----------
    levels, low_below
        As for ``usual_lull``.
    traffic
        Another level of the same work, in the same seconds; NaN = not known.

    Returns
    -------
    ndarray
        Shape of ``levels``. Where it lasts for more than ten minutes it is the job's work.
    """
    working = np.isfinite(levels) & np.isfinite(traffic) & (levels >= low_below)
    if not working.any():
        return np.zeros(len(levels), dtype=np.bool_)
    window = np.ones(_MIX_SECONDS)
    sent, computed = (
        np.convolve(np.where(working, values, 0.0), window, "same") for values in (traffic, levels)
    )
    mix = np.divide(sent, computed, out=np.full(len(levels), np.nan), where=computed > 0)
    less = mix < _MIX_SHARE * float(np.median(mix[working]))
    other = np.zeros(len(levels), dtype=np.bool_)
    for start, end in runs(less):
        # Where it begins and ends the means are of both.
        if end - start <= _LONGEST_OTHER:
            other[max(0, start - _MIX_SECONDS // 2) : end + _MIX_SECONDS // 2] = True
    return other


def step_rate(
    levels: NDArray[np.float64], low_below: float, lull_seconds: int | None = None
) -> tuple[float, int]:
    """Return the mean progress without the pauses.

    Parameters
    ----------
    levels, low_below
        As for ``usual_lull``.
    lull_seconds
        For how long an iteration makes next to no progress; None = as the levels show.

    Returns
    -------
    tuple
        The mean, NaN if nothing is known, and how many seconds it is of.
    """
    counted: NDArray[np.bool_] = np.isfinite(levels)
    low = low_runs(levels, low_below)
    lull = _usual(low, int(counted.sum())) if lull_seconds is None else lull_seconds
    longest = _LULLS * lull
    for start, end in low:
        if end - start > longest:
            counted[start:end] = False
    if not counted.any():
        return float("nan"), 0
    place = np.arange(len(levels))
    edge = min(_EDGE_SECONDS, len(levels) // 3) + 1
    weight = np.minimum(1.0, np.minimum(place + 1, place[::-1] + 1) / edge)[counted]
    return float(np.average(levels[counted], weights=weight)), int(counted.sum())


def lost_share(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    low_below: float,
    least_seconds: float,
    parts: int = 0,
) -> float:
    """Return the share of its step rate that a job has lost; NaN = not known.

    Parameters
    ----------
    before, after
        Progress second by second before and after a moment; NaN = not known.
    low_below
        As for ``usual_lull``.
    least_seconds
        Seconds needed before and after; with fewer nothing is known.
    parts
        Return what was lost in so many thirds of the time after, at least: an evaluation in the
        others does not count, and stalls that fall close together are no lulls. 0 = as a whole.
    """
    if not parts:
        return _lost(before, after, low_below, least_seconds, None)
    lull = usual_lull(np.concatenate((before, after)), low_below)
    thirds = np.array_split(after, _PARTS)
    losses = [_lost(before, third, low_below, least_seconds / _PARTS, lull) for third in thirds]
    return float(np.sort(losses)[_PARTS - parts]) if np.isfinite(losses).all() else float("nan")


def _lost(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    low_below: float,
    least_seconds: float,
    lull_seconds: int | None,
) -> float:
    usual, seconds_before = step_rate(before, low_below, lull_seconds)
    now, seconds_after = step_rate(after, low_below, lull_seconds)
    if min(seconds_before, seconds_after) <= least_seconds:
        return float("nan")
    return 1 - now / usual


def _usual(runs: NDArray[np.int64], seconds: int) -> int:
    lengths, pauses = np.sort(runs[:, 1] - runs[:, 0]), seconds // _RECURS_SECONDS
    return int(lengths[-1 - pauses]) if len(lengths) > pauses else 0
