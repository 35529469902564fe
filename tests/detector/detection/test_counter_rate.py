from __future__ import annotations

import numpy as np
import pytest

from peerwatch_detector.detection.methods.peerwatch.counter_rate import counter_rate, last_rise


def finished(times: list[float], seconds: int, first: int = 0) -> np.ndarray:
    """Return the counter of a job whose steps end at these times."""
    return first + np.searchsorted(np.asarray(times), np.arange(seconds), side="right").astype(
        float
    )


@pytest.mark.parametrize("step_seconds", [0.1, 0.4, 1.7, 20.0, 61.0])
def test_the_pace_of_a_steady_job_is_that_of_its_steps_however_long_they_are(
    step_seconds: float,
) -> None:
    found = counter_rate(finished(list(np.arange(0, 900, step_seconds)), 900))
    assert pytest.approx(1 / step_seconds, rel=0.02) == np.nanmean(found[300:])


def test_a_job_that_stops_falls_as_far_as_the_time_without_a_step_says() -> None:
    found = counter_rate(finished(list(np.arange(0, 300, 10.0)), 400))
    assert found[289] == pytest.approx(0.1)
    assert found[-1] == pytest.approx(1 / 109)
    # The step that is under way has one rate, from its beginning on.
    assert found[300] == found[-1]


def test_a_step_under_way_is_as_fast_as_the_last_one_until_it_takes_longer() -> None:
    assert counter_rate(finished([0.0, 10.0, 20.0], 29))[-1] == pytest.approx(0.1)
    assert counter_rate(finished([0.0, 10.0, 20.0], 41))[-1] == pytest.approx(1 / 20)


def test_a_fall_is_a_job_that_began_again_and_no_step() -> None:
    counter = np.concatenate([finished(list(np.arange(0, 300, 2.0)), 300, 5000), np.zeros(0)])
    resumed = finished(list(np.arange(40, 300, 2.0)), 300, 4000)
    found = counter_rate(np.concatenate([counter, resumed]))
    assert np.nanmax(found) == pytest.approx(0.5)
    assert np.isnan(found[301:340]).all()
    assert found[400] == pytest.approx(0.5)


def test_a_counter_that_was_set_makes_no_step() -> None:
    counter = finished(list(np.arange(0, 600, 2.0)), 600)
    counter[300:] += 10_000
    assert np.nanmax(counter_rate(counter)) == pytest.approx(0.5)


def test_seconds_without_samples_are_bridged_and_those_at_the_end_are_not() -> None:
    counter = finished(list(np.arange(0, 600, 2.0)), 600)
    counter[200:260] = np.nan
    counter[500:] = np.nan
    found = counter_rate(counter)
    assert found[230] == pytest.approx(0.5, rel=0.05)
    assert np.isnan(found[500:]).all()


@pytest.mark.parametrize("counter", [[], [5.0], [np.nan] * 9, [7.0] * 9, [9.0, 8.0, 7.0]])
def test_without_two_steps_nothing_is_known(counter: list[float]) -> None:
    assert np.isnan(counter_rate(np.asarray(counter))).all()


def test_the_last_rise_is_counted_from_the_last_sample() -> None:
    assert last_rise(np.array([1.0, 2.0, 2.0, 2.0, np.nan])) == 2
    assert last_rise(np.array([3.0, 3.0])) is None
    assert last_rise(np.array([3.0, 1.0])) is None
