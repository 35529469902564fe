from __future__ import annotations

import math
import random

import pytest

from peerwatch_reliability.accounting.intervals import (
    chi_square_quantile,
    dispersion_of,
    rate_of,
)


# Of printed tables.
@pytest.mark.parametrize(
    ("probability", "freedom", "value"),
    [
        (0.95, 1, 3.841459),
        (0.95, 2, 5.991465),
        (0.975, 4, 11.143287),
        (0.025, 2, 0.0506356),
        (0.5, 10, 9.341818),
        (0.99, 100, 135.80672),
        (0.025, 400, 346.48177),
    ],
)
def test_chi_square(probability, freedom, value):
    assert chi_square_quantile(probability, freedom) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 0.18, 39), (3, 0.34, 4.9), (10, 0.54, 2.1), (30, 0.70, 1.5), (100, 0.82, 1.23)],
)
def test_factors_of_a_mean_time(count, low, high):
    value, least, most = rate_of(count, 1000.0 * count).mean_time
    assert value == 1000
    assert least / value == pytest.approx(low, rel=0.03)
    assert most / value == pytest.approx(high, rel=0.03)


def test_without_a_failure_there_is_a_bound():
    value, least, most = rate_of(0, 1000.0).mean_time
    assert value is None
    assert least == pytest.approx(2 * 1000 / 5.991465)
    assert most == math.inf
    assert rate_of(0, 0.0) is None


def test_dispersion():
    assert dispersion_of([2, 4, 2, 4]) == 1.0
    assert dispersion_of([0, 8, 0, 8]) == pytest.approx(16 * 4 / 3 / 4)
    assert dispersion_of([0, 80]) == 1.0
    assert dispersion_of([0, 0, 0, 0, 0]) == 1.0


@pytest.mark.parametrize("burst", [1.0, 2.5, 4.0])
def test_interval_holds_the_truth_under_bursts(burst):
    """Weekly counts of a gamma-Poisson process with variance over mean = burst."""
    draw = random.Random(3)
    mean, weeks, held, fleets = 3.0, 52, 0, 150
    for _ in range(fleets):
        counts = []
        for _ in range(weeks):
            rate = draw.gammavariate(mean / (burst - 1), burst - 1) if burst > 1 else mean
            counts.append(_poisson(draw, rate))
        rate = rate_of(sum(counts), weeks, dispersion_of(counts))
        held += rate.low <= mean <= rate.high
    assert held / fleets >= 0.93


def _poisson(draw, mean):
    limit, count, product = math.exp(-mean), 0, draw.random()
    while product > limit:
        count += 1
        product *= draw.random()
    return count
