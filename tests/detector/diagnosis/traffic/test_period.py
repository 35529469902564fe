"""The period of traffic: found where samples show it, and nowhere else."""

import numpy as np
import pytest

from detector.diagnosis.traffic.traffic_series import Layout
from peerwatch_detector.diagnosis.traffic.period import (
    find_period,
    least_strength,
    shortest_period,
    strengths_at,
)


def levels(layout: Layout, seconds: int = 300) -> np.ndarray:
    return np.median(layout.observed()[:, -seconds:], axis=0).astype(np.float64)


@pytest.mark.parametrize("period", [3, 5, 8.3, 12, 20, 33, 45, 60, 100])
@pytest.mark.parametrize("jitter", [0.0, 0.03])
def test_a_period_is_found(period: float, jitter: float) -> None:
    found = find_period(levels(Layout(nodes=4, period=period, jitter=jitter, seconds=900)), 1, 1)

    assert found is not None
    assert period == pytest.approx(found.seconds, rel=0.05)
    assert found.strength > least_strength(300, 1)


@pytest.mark.parametrize("duty", [0.05, 0.1, 0.5, 0.9])
def test_however_long_nodes_send_in_a_step(duty: float) -> None:
    found = find_period(levels(Layout(nodes=4, period=20, duty=duty, seconds=900)), 1, 1)

    assert found is not None
    assert 20 == pytest.approx(found.seconds, rel=0.05)


@pytest.mark.parametrize("period", [1.0, 2.0])
def test_steps_shorter_than_samples_can_show_have_no_period(period: float) -> None:
    assert period < shortest_period(1)
    found = find_period(levels(Layout(nodes=4, period=period, seconds=900)), 1, 1)

    assert found is None or found.seconds == 0 or found.strength < 1


@pytest.mark.parametrize("period", [4, 10, 20, 30])
def test_rates_over_15_s_show_no_period_below_twice_and_a_half_of_that(period: float) -> None:
    layout = Layout(nodes=4, period=period, jitter=0.02, rate_seconds=15, seconds=1200)
    found = find_period(levels(layout, 600), 1, 15)

    assert found is None or found.strength < least_strength(600, 15)


def test_lost_samples_and_a_burst_change_little() -> None:
    seen = levels(Layout(nodes=4, period=12, seconds=900))
    random = np.random.default_rng(20_000)
    seen[random.random(300) < 0.3] = np.nan
    seen[100:105] = 1e14
    found = find_period(seen, 1, 1)

    assert found is not None
    assert 12 == pytest.approx(found.seconds, rel=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_chance_has_no_period(seed: int) -> None:
    random = np.random.default_rng(20_000 + seed)
    for seen in (random.exponential(1, 300), random.normal(0, 1, 300).cumsum(), np.ones(300)):
        found = find_period(seen, 1, 1)
        assert found is None or found.strength < 2 * least_strength(300, 1)


@pytest.mark.parametrize("known", [0, 1, 149])
def test_too_few_samples_say_nothing(known: int) -> None:
    seen = np.full(300, np.nan)
    seen[:known] = 1.0

    assert find_period(seen, 1, 1) is None


def test_each_node_keeps_the_rhythm_whatever_its_phase() -> None:
    seen = Layout(nodes=6, period=10, seconds=600).observed()[:, -300:]
    seen[1] = np.roll(seen[1], 5)
    seen[2] = np.random.default_rng(1).exponential(2e9, 300)
    seen[3] = 7.0
    seen[4, :200] = np.nan
    strengths = strengths_at(seen, 10, 1)

    assert strengths[[0, 1, 5]].min() > 0.4 > 0.2 > strengths[2]
    assert np.isnan(strengths[[3, 4]]).all()
