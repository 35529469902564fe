"""A job's step rate against its own usual one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.methods.peerwatch.progress import ProgressTracker

START = 1_700_000_000


def steps(*stretches: tuple[float, float], first: int = 0) -> np.ndarray:
    """Return a counter second by second of stretches of (seconds, seconds per step); inf = none."""
    ends: list[float] = []
    time = 0.0
    for seconds, each in stretches:
        if math.isfinite(each):
            ends += list(np.arange(time + each, time + seconds + 1e-6, each))
        time += seconds
    return first + np.searchsorted(np.array(ends), np.arange(int(time)), side="right").astype(float)


def tracked(counter: np.ndarray) -> ProgressTracker:
    tracker = ProgressTracker(PeerwatchConfig(), least_seconds=60, counters={"rank_steps": True})
    tracker.write("rank_steps", 0.0, START + np.arange(len(counter)), counter)
    return tracker


def ratio(tracker: ProgressTracker, second: int) -> float | None:
    """Return the ratio at a second, to two places."""
    tracker.phase(START + second)
    found = tracker.step_rate(START + second)
    return None if found is None else round(found.ratio, 2)


@pytest.mark.parametrize("seconds", [0.15, 0.4, 2.0, 30.0])
def test_a_steady_job_is_as_fast_as_usual(seconds: float) -> None:
    assert ratio(tracked(steps((1800, seconds))), 1799) == pytest.approx(1, abs=0.02)


def test_a_job_that_slows_down_shows_it_within_a_minute_or_two() -> None:
    tracker = tracked(steps((1800, 0.4), (600, 0.8)))
    assert ratio(tracker, 1799) == pytest.approx(1, abs=0.02)
    assert ratio(tracker, 1900) == pytest.approx(0.5, abs=0.02)
    assert ratio(tracker, 2399) == pytest.approx(0.5, abs=0.02)


def test_what_stays_slow_becomes_usual_within_the_hour() -> None:
    counter = steps((1200, 2.0), (3600, 4.0))
    half_an_hour, an_hour = 1200 + 1800, 1200 + 3500
    assert ratio(tracked(counter[: half_an_hour + 1]), half_an_hour) == pytest.approx(0.5, abs=0.02)
    assert ratio(tracked(counter[: an_hour + 1]), an_hour) == pytest.approx(1, abs=0.02)


def test_checkpoints_of_ordinary_length_do_not_count() -> None:
    # Ninety seconds in every five minutes: the step rate between them is as usual.
    job = [(210.0, 2.0), (90.0, math.inf)] * 8
    tracker = tracked(steps(*job))
    assert {ratio(tracker, second) for second in range(1500, 2400, 50)} <= {0.99, 1.0, 1.01}


def test_a_pause_as_none_before_it_counts_once_it_is_longer_than_any() -> None:
    tracker = tracked(steps((1800, 2.0), (600, math.inf)))
    assert ratio(tracker, 1895) == pytest.approx(1, abs=0.02)
    assert ratio(tracker, 1990) < 0.1


def test_a_job_that_came_back_from_long_pauses_is_given_as_long_again() -> None:
    tracker = tracked(steps((1800, 2.0), (240, math.inf), (600, 2.0), (600, math.inf)))
    assert ratio(tracker, 2640 + 300) == pytest.approx(1, abs=0.02)
    assert ratio(tracker, 2640 + 420) < 0.2


def test_nothing_is_known_at_the_start_nor_after_a_resume_or_on_other_nodes() -> None:
    # Slow first steps, as of a job that compiles and fills its caches.
    tracker = tracked(steps((100, 20.0), (1700, 2.0)))
    assert ratio(tracker, 700) is None
    assert ratio(tracker, 1000) == pytest.approx(1, abs=0.02)
    before, after = steps((1800, 2.0), first=5000), steps((1500, 4.0), first=4800)
    resumed = tracked(np.concatenate([before, after]))
    assert ratio(resumed, 2200) is None
    assert ratio(resumed, 3200) == pytest.approx(1, abs=0.02)
    resized = tracked(steps((1800, 2.0), (1500, 4.0)))
    ratio(resized, 1799)
    resized.begin_anew(START + 1800)
    assert ratio(resized, 2200) is None
    assert ratio(resized, 3200) == pytest.approx(1, abs=0.02)


def test_samples_of_other_nodes_make_no_resume() -> None:
    # The median wavers by a step where a node is not read for a second.
    counter = steps((1800, 0.4))
    counter[100::7] -= 1.5
    assert ratio(tracked(counter), 1799) == pytest.approx(1, abs=0.02)


def test_a_restart_goes_on_with_the_pace_that_was_published() -> None:
    # Fifteen minutes are read again, of which only the first was as usual.
    counter = steps((60, 2.0), (840, 4.0))
    assert ratio(tracked(counter), 899) == pytest.approx(1, abs=0.02)
    restored = tracked(counter)
    restored.restore("rank_steps", 0.5)
    assert ratio(restored, 899) == pytest.approx(0.5, abs=0.02)
    assert ratio(restored, 200) == pytest.approx(0.5, abs=0.02)


def test_a_job_whose_steps_are_not_counted_has_no_step_rate() -> None:
    tracker = ProgressTracker(PeerwatchConfig(), least_seconds=60, counters={"rank_steps": True})
    tracker.write("gpu_power", 20.0, START + np.arange(1800), np.full(1800, 400.0))
    assert ratio(tracker, 1799) is None
