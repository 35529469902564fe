from __future__ import annotations

import math

import numpy as np
import pytest

from peerwatch_detector.detection.methods.peerwatch.step_rate import (
    lost_share,
    other_work,
    step_rate,
    usual_lull,
)

LOW = 0.1


def iterating(
    seconds: int, period: float, computing: float = 0.6, begin: float = 0.0
) -> np.ndarray:
    """Return the progress of a job that computes for a share of every period, then exchanges."""
    place = begin + np.arange(seconds * 100) / 100 / period
    return 0.5 * (place % 1 < computing).reshape(seconds, 100).mean(axis=1)


def test_lulls_are_those_that_recur() -> None:
    levels = np.full(300, 0.5)
    assert 0 == usual_lull(levels, LOW)
    # Five in five minutes may be pauses.
    for start in range(10, 300, 60):
        levels[start : start + 8] = 0.0
    assert 0 == usual_lull(levels, LOW)
    levels[285:288] = 0.0
    assert 3 == usual_lull(levels, LOW)
    assert 0 == usual_lull(np.empty(0), LOW)


def test_a_long_pause_is_no_lull() -> None:
    levels = iterating(300, 10)
    assert 4 == usual_lull(levels, LOW)
    levels[100:160] = 0.0
    assert 4 == usual_lull(levels, LOW)


def test_a_past_that_is_not_known_has_no_pauses() -> None:
    levels = np.concatenate([np.full(540, math.nan), iterating(60, 20)])
    assert 8 == usual_lull(levels, LOW)


def test_pauses_do_not_count_and_lulls_do() -> None:
    steady = np.full(300, 0.5)
    steady[100:140] = 0.0
    assert (0.5, 260) == step_rate(steady, LOW)
    levels = iterating(300, 10)
    levels[100:140] = 0.0
    mean, seconds = step_rate(levels, LOW)
    assert pytest.approx(0.3, abs=0.01) == mean
    # The lulls on both sides of a pause melt into it.
    assert 250 <= seconds <= 260


@pytest.mark.parametrize("period", [1.7, 2.6, 4, 7, 11, 13])
@pytest.mark.parametrize("slower", [1.03, 1.1, 1.3])
def test_longer_lulls_are_a_slower_pace(period: float, slower: float) -> None:
    computing = 0.6 / slower
    for begin in (0.0, 0.3, 0.7):
        before, _ = step_rate(iterating(300, period), LOW)
        after, _ = step_rate(iterating(240, period * slower, computing, begin), LOW)
        assert pytest.approx(1 - 1 / slower, abs=0.015) == 1 - after / before


def test_part_of_an_iteration_more_or_less_changes_little() -> None:
    means = [step_rate(iterating(seconds, 13), LOW)[0] for seconds in range(240, 254)]
    assert 0.005 > np.ptp(means) / np.mean(means)


def test_what_is_not_known_does_not_count() -> None:
    levels = np.full(100, 0.5)
    levels[10:30] = math.nan
    assert (0.5, 80) == step_rate(levels, LOW)
    mean, seconds = step_rate(np.full(50, math.nan), LOW)
    assert (True, 0) == (math.isnan(mean), seconds)
    assert 0 == step_rate(np.empty(0), LOW)[1]


BEFORE = np.full(300, 0.5)


def lost(after: np.ndarray) -> tuple[float, float, float]:
    """Return the loss as a whole, in two thirds and in all thirds."""
    whole, most, throughout = (lost_share(BEFORE, after, LOW, 60, parts) for parts in (0, 2, 3))
    return whole, most, throughout


def test_a_slower_job_is_slower_throughout() -> None:
    assert pytest.approx([0.2] * 3) == lost(np.full(240, 0.4))


def test_an_evaluation_is_no_loss_in_most_of_the_time() -> None:
    after = np.full(240, 0.5)
    after[90:150] = 0.2
    whole, most, throughout = lost(after)
    assert 0.1 < whole
    assert pytest.approx([0.0, 0.0]) == [most, throughout]
    # What began before it was not its doing, but it may cost more later.
    after[160:] = 0.4
    assert pytest.approx([0.2, 0.0]) == lost(after)[1:]


def test_stalls_that_fall_close_together_are_no_lulls() -> None:
    after = np.full(240, 0.5)
    for start, seconds in ((20, 8), (50, 11), (110, 7), (140, 9), (190, 8), (215, 10)):
        after[start : start + seconds] = 0.0
    whole, most, throughout = lost(after)
    assert 0.1 < whole
    assert pytest.approx([0.0, 0.0]) == [most, throughout]


def test_longer_lulls_are_lost_throughout() -> None:
    before, after = iterating(300, 10), iterating(240, 12, computing=0.5)
    losses = [lost_share(before, after, LOW, 60, parts) for parts in (0, 2, 3)]
    assert pytest.approx([1 / 6] * 3, abs=0.03) == losses


def test_a_third_of_which_nothing_is_known_says_nothing_of_the_loss() -> None:
    after = np.full(240, 0.4)
    after[80:160] = math.nan
    assert pytest.approx(0.2) == lost_share(BEFORE, after, LOW, 60)
    assert math.isnan(lost_share(BEFORE, after, LOW, 60, 2))


def worked(*parts: tuple[int, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return what is computed and sent in stretches of seconds."""
    seconds, computed, sent = zip(*parts, strict=True)
    return np.repeat(computed, seconds), np.repeat(sent, seconds)


def test_to_compute_with_little_traffic_is_other_work() -> None:
    levels, traffic = worked((600, 0.4, 100.0), (120, 0.3, 5.0), (300, 0.4, 100.0))
    marked = np.flatnonzero(other_work(levels, traffic, 0.1))
    # Half a mean of both at either end.
    assert abs(int(marked[0]) - 600) <= 15
    assert abs(int(marked[-1]) - 720) <= 15
    assert len(marked) == marked[-1] - marked[0] + 1


@pytest.mark.parametrize(
    "slower",
    [
        pytest.param((300, 0.2, 50.0), id="a slower job"),
        pytest.param((700, 0.3, 5.0), id="more than ten minutes"),
        pytest.param((120, 0.01, 0.0), id="a pause"),
        pytest.param((120, 0.3, float("nan")), id="no samples"),
    ],
)
def test_no_other_work(slower: tuple[int, float, float]) -> None:
    levels, traffic = worked((900, 0.4, 100.0), slower, (300, 0.4, 100.0))
    assert not other_work(levels, traffic, 0.1).any()


def test_a_job_that_never_works_does_no_other_work() -> None:
    nothing = np.zeros(100)
    assert not other_work(nothing, nothing, 0.1).any()
    assert not other_work(np.full(100, np.nan), nothing, 0.1).any()
