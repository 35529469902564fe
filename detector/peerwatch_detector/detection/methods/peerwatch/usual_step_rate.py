"""A job's step rate against its own usual one, pauses of ordinary length left out of both."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.methods.peerwatch.step_rate import low_runs, ordinary_pause

# The present rate is that of the last minute, or of this many steps where they take longer.
PRESENT_SECONDS = 60
_PRESENT_STEPS = 5
# Steps of a job that has just begun, or begun anew, are slower than those that follow.
_WARM_UP_SECONDS = 120
# So much of the past makes a usual rate: ten times the present.
_LEAST_SECONDS = 600
# The usual rate is this quantile over the past's parts, each as long as the present: a job that was
# slowed for less than three quarters of an hour has its former rate as the usual one.
_USUAL_QUANTILE = 0.75
# A step rate below this share of the usual one is a pause.
_PAUSE_SHARE = 0.3
# Seconds of past that count.
MEMORY_SECONDS = 3600


def relative_step_rate(
    rate: NDArray[np.float64], patience_seconds: float, usual_before: float = math.nan
) -> tuple[float, float]:
    """Return the present step rate as a share of the usual one, and the usual one.

    Parameters
    ----------
    rate
        Second by second since the job began, or began anew, up to now and for an hour at most;
        NaN = not known.
    patience_seconds
        Pauses up to so long are ordinary, whether or not the job had any like them.
    usual_before
        The usual step rate in the hour before the first second; NaN = not known.

    Returns
    -------
    tuple
        Share and steps per second; NaN as long as too little is known.
    """
    restored = math.isfinite(usual_before)
    known = rate[0 if restored else _WARM_UP_SECONDS :]
    known = known[np.isfinite(known)]
    if not len(known):
        return math.nan, math.nan
    typical = usual_before if restored else float(np.quantile(known, _USUAL_QUANTILE))
    counted = known[_counted(known, _PAUSE_SHARE * typical, patience_seconds)]
    length = max(PRESENT_SECONDS, math.ceil(_PRESENT_STEPS / typical))
    parts = len(counted) // length
    if parts < 1:
        return math.nan, math.nan
    means = counted[len(counted) - parts * length :].reshape(parts, length).mean(axis=1)
    before = means[:-1]
    if restored:
        missing = max(0, MEMORY_SECONDS - len(known)) // length
        before = np.concatenate((np.full(missing, usual_before), before))
    if len(before) * length < _LEAST_SECONDS:
        return math.nan, math.nan
    usual = float(np.quantile(before, _USUAL_QUANTILE))
    return float(means[-1]) / usual, usual


def _counted(
    known: NDArray[np.float64], low_below: float, patience_seconds: float
) -> NDArray[np.bool_]:
    """Mark the seconds that are no pause; one that lasts longer than any before it is none."""
    counted = np.ones(len(known), dtype=np.bool_)
    ordinary = ordinary_pause(known, low_below, patience_seconds)
    for start, end in low_runs(known, low_below):
        if end < len(known) or end - start <= ordinary:
            counted[start:end] = False
    return counted
