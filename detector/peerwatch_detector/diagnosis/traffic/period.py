"""How often traffic repeats itself: a training job sends alike in every step.

The period is where the autocorrelation of the traffic has its first high maximum. Samples that are
missing count in no pair, and what stands out for once, as a burst to storage, is cut first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Of the sampling theorem's two samples a period, with some room for jitter: a quarter more.
SAMPLES_A_PERIOD = 2.5
# So many periods must lie within what is examined, or one repetition would decide.
PERIODS_EXAMINED = 2.5
# The correlation must have fallen by so much between two repetitions: one that only fades, as of
# a level that wanders, repeats nothing. Chosen: as much as a repetition must be above nothing.
_LEAST_DIP = 0.3
# The first maximum that is nearly as high as the highest: multiples of a period are as high, up to
# jitter. Chosen: a part of a period correlates far less.
_NEARLY = 0.85
# Chance correlates n independent samples by more than so many times 1 / sqrt(n) in one of 1,000; of
# a hundred samples that is 0.3, and more of them make no weaker rhythm count.
_BEYOND_CHANCE, _LEAST_STRENGTH = 3.0, 0.3
# Levels beyond these quantiles are cut to them. Chosen: a burst in a twentieth of the time, as of a
# checkpoint, does not drown the steps.
_CUT = (0.05, 0.95)
# So large a share of the samples must be known: most of them.
_LEAST_KNOWN = 0.5


@dataclass(frozen=True, slots=True)
class Period:
    """How traffic repeats itself.

    Parameters
    ----------
    seconds
        From one repetition to the next.
    strength
        How much alike they are: the autocorrelation, at most 1; 0 = not at all.
    """

    seconds: float
    strength: float


def shortest_period(resolution_seconds: float) -> float:
    """Return the shortest period that samples can show, each the mean of so many seconds."""
    return SAMPLES_A_PERIOD * resolution_seconds


def longest_period(window_seconds: float) -> float:
    """Return the longest period that can be told from what so many seconds show."""
    return window_seconds / PERIODS_EXAMINED


def least_strength(seconds: float, resolution_seconds: float) -> float:
    """Return the autocorrelation that chance does not reach.

    Parameters
    ----------
    seconds
        Length of what is examined.
    resolution_seconds
        Time from one independent sample to the next.
    """
    return max(_LEAST_STRENGTH, _BEYOND_CHANCE / float(np.sqrt(seconds / resolution_seconds)))


def find_period(
    levels: NDArray[np.float64], step_seconds: float, resolution_seconds: float
) -> Period | None:
    """Return the period of some levels.

    Parameters
    ----------
    levels
        On a regular grid, shape (n_steps,); NaN = not known.
    step_seconds
        Time between two of them.
    resolution_seconds
        Time from one independent sample to the next; a rate over 15 s has 15 s.

    Returns
    -------
    Period | None
        None if too few samples are known to say, or if it is too short for them; strength 0 if
        nothing repeats.
    """
    seconds = len(levels) * step_seconds
    first = int(np.ceil(shortest_period(resolution_seconds) / step_seconds))
    last = int(longest_period(seconds) / step_seconds)
    known = np.isfinite(levels)
    if last <= first or known.sum() < _LEAST_KNOWN * len(levels):
        return None
    correlation = _autocorrelation(_cut(levels), last + 1)
    lag = _first_maximum(correlation, last)
    if lag is None:
        return Period(0.0, 0.0)
    if lag < first:
        return None
    return Period(_between(correlation, lag) * step_seconds, float(correlation[lag]))


def strengths_at(
    levels: NDArray[np.float32], period_seconds: float, step_seconds: float
) -> NDArray[np.float64]:
    """Return how much alike the levels of each node are after a period.

    Parameters
    ----------
    levels
        Shape (n_nodes, n_steps); NaN = not known.
    period_seconds
        The period.
    step_seconds
        Time between two levels.

    Returns
    -------
    NDArray[np.float64]
        The autocorrelation, shape (n_nodes,); NaN where too little is known or nothing changes.
    """
    lag = round(period_seconds / step_seconds)
    known = np.isfinite(levels)
    count = known.sum(axis=1)
    mean = np.where(known, levels, 0).sum(axis=1, dtype=np.float64) / np.maximum(count, 1)
    centred = np.where(known, levels - mean[:, None], 0)
    variance = np.einsum("ij,ij->i", centred, centred, dtype=np.float64)
    pairs = (known[:, :-lag] & known[:, lag:]).sum(axis=1)
    product = np.einsum("ij,ij->i", centred[:, :-lag], centred[:, lag:], dtype=np.float64)
    enough = (count >= _LEAST_KNOWN * levels.shape[1]) & (pairs > 0) & (variance > 0)
    found = np.full(len(levels), np.nan)
    np.divide(product * count, variance * pairs, out=found, where=enough)
    return found


def _cut(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = np.nanquantile(levels, _CUT)
    # What is nearly always the same has all that happens beyond the quantiles.
    return np.clip(levels, low, high) if high > low else levels


def _autocorrelation(levels: NDArray[np.float64], lags: int) -> NDArray[np.float64]:
    """Return it at lags 0 to ``lags``; NaN where too few pairs are known or nothing changes."""
    known = np.isfinite(levels)
    centred = np.where(known, levels - levels[known].mean(), 0.0)
    size = 1 << (len(levels) + lags).bit_length()
    product, pairs = (
        np.fft.irfft(np.abs(np.fft.rfft(each, size)) ** 2, size)[: lags + 1]
        for each in (centred, known.astype(np.float64))
    )
    enough = pairs > _LEAST_KNOWN**2 * (len(levels) - np.arange(lags + 1))
    found = np.full(lags + 1, np.nan)
    # Sums of squares that are nothing but rounding.
    if product[0] > 1e-12 * float(np.square(levels[known]).sum()):
        np.divide(product * pairs[0], pairs * product[0], out=found, where=enough)
    return found


def _first_maximum(correlation: NDArray[np.float64], last: int) -> int | None:
    """Return the lag of the first high maximum after a dip; None if there is none."""
    known = np.where(np.isfinite(correlation), correlation, -np.inf)
    lowest = np.minimum.accumulate(np.where(np.isfinite(correlation), correlation, np.inf))
    inner = np.arange(1, min(last + 1, len(known) - 1))
    peaks = inner[(known[inner] >= known[inner - 1]) & (known[inner] >= known[inner + 1])]
    peaks = peaks[(known[peaks] - lowest[peaks] >= _LEAST_DIP) & (known[peaks] > 0)]
    if not len(peaks):
        return None
    return int(peaks[known[peaks] >= _NEARLY * known[peaks].max()][0])


def _between(correlation: NDArray[np.float64], lag: int) -> float:
    """Return where between the lags the maximum lies, by a parabola through three of them."""
    left, middle, right = correlation[lag - 1 : lag + 2]
    bend = left - 2 * middle + right
    if not np.isfinite(bend) or bend >= 0:
        return float(lag)
    return float(lag + np.clip(0.5 * (left - right) / bend, -0.5, 0.5))
