"""Measures of advice, with intervals that know that texts of one mechanism are no two witnesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

# Chosen: 50 resamples lie beyond either end of a 95 % interval.
_RESAMPLES = 2000
# Any number does; the same one gives the same intervals.
_SEED = 17
# As usual for this error.
_BINS = 10


def macro_f1(truths: Bools, retries: Bools) -> float:
    """Return the mean of the F1 of "start again" and of "do not"."""
    found = []
    for label in (True, False):
        both = np.sum((truths == label) & (retries == label))
        either = np.sum(truths == label) + np.sum(retries == label)
        found.append(2 * both / either if either else 0.0)
    return float(np.mean(found))


def false_stop(truths: Bools, retries: Bools) -> float:
    """Return the share of jobs worth another attempt that are stopped."""
    return float(np.mean(~retries[truths])) if truths.any() else 0.0


def false_retry(truths: Bools, retries: Bools) -> float:
    """Return the share of jobs not worth another attempt that are started again."""
    return float(np.mean(retries[~truths])) if (~truths).any() else 0.0


def calibration_error(truths: Bools, chances: Floats) -> float:
    """Return the expected calibration error, 0 to 1: ten bins of the chance, weighted by texts."""
    bins = np.minimum((chances * _BINS).astype(int), _BINS - 1)
    gaps = [
        np.sum(bins == each)
        * abs(float(np.mean(truths[bins == each])) - float(np.mean(chances[bins == each])))
        for each in np.unique(bins)
    ]
    return float(sum(gaps) / len(chances))


@dataclass(frozen=True, slots=True)
class Interval:
    """A measure and its 95 % interval.

    Parameters
    ----------
    value
        Over all texts.
    low, high
        Percentiles 2.5 and 97.5 over resampled mechanisms.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}-{self.high:.3f})"


def interval(measure: Callable[[Numbers], float], mechanisms: list[str]) -> Interval:
    """Return a measure with its interval, by bootstrap over mechanisms.

    Parameters
    ----------
    measure
        Of the texts with these numbers; a number may be there more than once.
    mechanisms
        Of each text.
    """
    values = [measure(drawn) for drawn in _resamples(mechanisms)]
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(measure(np.arange(len(mechanisms))), float(low), float(high))


def chance_of_no_gain(
    measure: Callable[[Numbers], float], other: Callable[[Numbers], float], mechanisms: list[str]
) -> float:
    """Return how often one is no better than another over resampled mechanisms: one-sided p."""
    draws = _resamples(mechanisms)
    worse = sum(measure(drawn) <= other(drawn) for drawn in draws)
    return (worse + 1) / (len(draws) + 1)


def _resamples(mechanisms: list[str]) -> list[Numbers]:
    names = np.array(mechanisms)
    groups = [np.flatnonzero(names == name) for name in sorted(set(mechanisms))]
    rng = np.random.default_rng(_SEED)
    return [
        np.concatenate([groups[at] for at in rng.integers(len(groups), size=len(groups))])
        for _ in range(_RESAMPLES)
    ]
