"""Rates of rare events and the intervals they lie in, also where events come in bursts.

The interval is that of a Poisson count (Garwood 1936). Where weekly counts vary more than a Poisson
count would, by the factor φ, n/φ independent events are taken in T/φ: measured on simulated bursts
the interval then holds the truth as often as it says, where the plain one holds it in 68 to 85 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Chosen: fewer blocks say nothing of how counts vary.
_FEWEST_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of events and its 95 % interval; ``value`` None: none was seen, ``high`` bounds it.

    Parameters
    ----------
    count
        Events.
    exposure
        In which they were seen, such as node-days.
    value, low, high
        Events per unit of exposure.
    dispersion
        φ, by which the interval was widened.
    """

    count: int
    exposure: float
    value: float | None
    low: float
    high: float
    dispersion: float

    @property
    def mean_time(self) -> tuple[float | None, float, float]:
        """The mean exposure to an event with its bounds; infinite where the rate may be 0."""
        value = None if not self.value else 1 / self.value
        high = 1 / self.low if self.low > 0 else math.inf
        return value, 1 / self.high if self.high > 0 else math.inf, high


def rate_of(
    count: int, exposure: float, dispersion: float = 1.0, confidence: float = 0.95
) -> Rate | None:
    """Return a rate; None without exposure.

    Parameters
    ----------
    count, exposure
        Events, and what they were seen in.
    dispersion
        φ, variance over mean of counts; below 1 it is taken as 1.
    confidence
        How often the interval shall hold the truth.
    """
    if exposure <= 0:
        return None
    phi = max(1.0, dispersion)
    tail = (1 - confidence) / 2
    if count == 0:
        # One-sided: there is nothing below.
        bound = chi_square_quantile(confidence, 2) / 2 * phi
        return Rate(0, exposure, None, 0.0, bound / exposure, phi)
    events = count / phi
    low = chi_square_quantile(tail, 2 * events) / 2 * phi
    high = chi_square_quantile(1 - tail, 2 * events + 2) / 2 * phi
    return Rate(count, exposure, count / exposure, low / exposure, high / exposure, phi)


def dispersion_of(counts: Sequence[int]) -> float:
    """Return variance over mean of counts of equally long blocks, such as weeks; at least 1."""
    mean = sum(counts) / len(counts) if counts else 0.0
    if len(counts) < _FEWEST_BLOCKS or mean == 0:
        return 1.0
    variance = sum((each - mean) ** 2 for each in counts) / (len(counts) - 1)
    return max(1.0, variance / mean)


def chi_square_quantile(probability: float, freedom: float) -> float:
    """Return the value below which chi square lies with a probability; freedom may be a fraction.

    Raises
    ------
    ValueError
        If the probability is not between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability must be between 0 and 1, not {probability}")
    return 2 * gamma_quantile(probability, freedom / 2)


@lru_cache(maxsize=4096)
def gamma_quantile(probability: float, shape: float) -> float:
    """Return the quantile of a gamma distribution of scale 1."""
    low, high = 0.0, max(1.0, shape)
    while regularized_gamma(shape, high) < probability:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        if regularized_gamma(shape, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def regularized_gamma(shape: float, x: float) -> float:
    """Return P(shape, x), the lower incomplete gamma function over the whole one."""
    if x <= 0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        n = shape
        while abs(term) > 1e-14 * abs(total):
            n += 1
            term *= x / n
            total += term
        return front * total
    # Lentz's continued fraction of the upper part, which converges fast here.
    tiny = 1e-300
    b = x + 1 - shape
    c, d = 1 / tiny, 1 / b
    fraction = d
    for n in range(1, 10_000):
        a = -n * (n - shape)
        b += 2
        d = 1 / ((a * d + b) or tiny)
        c = (b + a / c) or tiny
        change = d * c
        fraction *= change
        if abs(change - 1) < 1e-13:
            break
    return 1 - front * fraction
