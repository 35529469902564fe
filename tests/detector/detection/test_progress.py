from __future__ import annotations

import math

import numpy as np
import pytest

from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.methods.peerwatch.phase import Phase
from peerwatch_detector.detection.methods.peerwatch.progress import ProgressTracker

START = 1_700_000_000
TENSOR, BUSY = "gpu_tensor_activity", "gpu_duty_cycle"


def progress(**series: np.ndarray) -> ProgressTracker:
    """Feed whole series at once and return the progress."""
    result = ProgressTracker(PeerwatchConfig(), least_seconds=60)
    for name, levels in series.items():
        result.write(name, 0.02, START + np.arange(len(levels)), levels)
    return result


def steady(seconds: int = 600, level: float = 0.4) -> np.ndarray:
    return np.full(seconds, level)


def phase(second: int, **series: np.ndarray) -> Phase:
    """Return the phase at a second, asked step by step."""
    found, tracker = Phase(), progress(**series)
    for time in range(0, second + 1, 5):
        found = tracker.phase(START + time)
    return found


def test_a_busy_job_with_progress_trains() -> None:
    found = phase(595, gpu_tensor_activity=steady(), gpu_duty_cycle=steady(level=0.99))
    assert Phase(known=True, idle=False, waiting=False) == found


def test_busy_without_progress_is_waiting() -> None:
    tensor = steady()
    tensor[500:] = 0.01
    series = {TENSOR: tensor, BUSY: steady(level=0.99)}
    assert not phase(500, **series).waiting
    assert Phase(known=True, waiting=True) == phase(515, **series)


def test_a_slower_job_does_not_wait() -> None:
    tensor = steady()
    tensor[500:] = 0.1
    assert not phase(595, gpu_tensor_activity=tensor).waiting


def test_a_job_has_ended_once_its_memory_is_given_back() -> None:
    busy, held = steady(level=0.99), steady(level=0.8)
    busy[500:], held[510:] = 0.0, 0.01
    series = {TENSOR: steady(), BUSY: busy, "gpu_memory_used": held}
    rests, ended = phase(505, **series), phase(520, **series)
    assert [(True, False), (True, True)] == [(it.idle, it.ended) for it in (rests, ended)]
    # Busy GPUs are another job's, or the samples are late.
    assert not phase(520, **series | {BUSY: steady(level=0.99)}).ended
    assert not phase(520, **{TENSOR: steady(), BUSY: busy}).ended


def test_a_job_whose_gpus_rest_is_idle() -> None:
    busy = steady(level=0.99)
    busy[500:] = 0.06
    assert phase(515, gpu_tensor_activity=steady(), gpu_duty_cycle=busy).idle
    assert not phase(495, gpu_tensor_activity=steady(), gpu_duty_cycle=busy).idle


def test_nothing_is_known_without_a_metric_or_before_its_usual_level() -> None:
    assert Phase() == phase(595, cpu_usage=steady())
    assert Phase() == phase(55, gpu_tensor_activity=steady())
    assert phase(70, gpu_tensor_activity=steady()).known


def test_a_metric_that_is_always_next_to_nothing_tells_nothing() -> None:
    assert not phase(595, gpu_tensor_activity=steady(level=0.001)).known
    series = {TENSOR: steady(level=0.001), "gpu_power": steady(level=400.0)}
    assert phase(595, **series).known


def test_progress_stays_known_when_its_metric_stops_coming() -> None:
    tensor = np.concatenate([steady(), np.full(700, np.nan)])
    assert Phase(known=True) == phase(1295, gpu_tensor_activity=tensor)


def test_samples_every_five_seconds_hold_until_the_next() -> None:
    tensor = np.full(900, np.nan)
    tensor[::5] = 0.4
    tensor[600::5] = 0.2
    tracker = progress(gpu_tensor_activity=tensor)
    tracker.phase(START + 895)
    assert pytest.approx(0.5) == tracker.loss(START + 600, START + 895, 60)


def test_the_loss_is_the_share_of_progress_after_a_moment_against_before() -> None:
    tensor = steady(900)
    tensor[600:] *= 0.9
    # Pauses before and after say nothing about the step rate.
    tensor[400:420] = tensor[700:740] = 0.0
    tracker = progress(gpu_tensor_activity=tensor)
    tracker.phase(START + 895)
    assert pytest.approx(0.1) == tracker.loss(START + 600, START + 895, 60)
    assert pytest.approx(0.0) == tracker.loss(START + 320, START + 590, 60)


def iterating(seconds: int, lull: int, period: int = 20) -> np.ndarray:
    """Return a job of long iterations that end with so many seconds of next to nothing."""
    place = np.arange(seconds) % period
    return np.where(place < period - lull, 0.4, 0.001)


def test_a_loss_shows_where_iterations_have_lulls() -> None:
    # The same work in 24 s instead of 20 s: the ranks wait 4 s longer for the slowest.
    tensor = np.concatenate([iterating(600, 8), iterating(480, 12, period=24)])
    tracker = progress(gpu_tensor_activity=tensor)
    tracker.phase(START + 1075)
    assert pytest.approx(1 / 6, abs=0.02) == tracker.loss(START + 600, START + 1075, 60)
    assert pytest.approx(0.0, abs=0.02) == tracker.loss(START + 300, START + 590, 60)


def test_the_lull_of_an_iteration_is_no_wait() -> None:
    tensor = iterating(900, 8)
    tensor[600:] = 0.001
    tracker = progress(gpu_tensor_activity=tensor)
    waits = {time: tracker.phase(START + time) for time in range(0, 700, 5)}
    noticed = [time for time, found in waits.items() if found.waiting]
    # The last iteration's work ends at 592; it could have gone on until 600.
    assert list(range(noticed[0], 700, 5)) == noticed
    assert 600 < noticed[0] <= 615
    assert 585 <= noticed[0] - waits[noticed[0]].noticed_seconds <= 602


def test_too_short_a_time_says_nothing_about_a_loss() -> None:
    tracker = progress(gpu_tensor_activity=steady())
    assert math.isnan(tracker.loss(START + 300, START + 595, 60))
    tracker.phase(START + 595)
    assert math.isnan(tracker.loss(START + 540, START + 595, 60))
    assert math.isnan(tracker.loss(START + 30, START + 595, 60))


def test_what_is_written_in_parts_is_what_is_written_at_once() -> None:
    rng = np.random.default_rng(3)
    tensor = rng.uniform(0.3, 0.5, 800)
    tensor[rng.random(800) < 0.3] = np.nan
    tensor[300:330] = np.nan
    whole, parts = progress(gpu_tensor_activity=tensor), progress()
    for left in range(0, 800, 37):
        times = START + np.arange(max(0, left - 20), min(800, left + 37))
        parts.write(TENSOR, 0.02, times, tensor[times - START])
    for tracker in (whole, parts):
        tracker.phase(START + 799)
    assert whole.loss(START + 400, START + 799, 60) == parts.loss(START + 400, START + 799, 60)


def test_what_comes_later_changes_nothing_before() -> None:
    later = np.concatenate([steady(400), steady(400, 0.1)])
    short, long = progress(gpu_tensor_activity=steady(400)), progress(gpu_tensor_activity=later)
    for time in range(0, 400, 5):
        assert short.phase(START + time) == long.phase(START + time)


def fine(levels: np.ndarray, per_second: int = 10) -> ProgressTracker:
    """Feed a series of seconds as so many samples in each."""
    result = ProgressTracker(PeerwatchConfig(), least_seconds=60, sample_seconds=1 / per_second)
    samples = np.repeat(levels, per_second)
    # Within a second the level swings, as bursts do.
    samples = samples * (1 + 0.5 * (-1.0) ** np.arange(len(samples)))
    result.write(TENSOR, 0.02, START + np.arange(len(samples)) / per_second, samples)
    return result


def test_finer_samples_tell_of_progress_by_the_second() -> None:
    tensor = steady(900)
    tensor[600:] = 0.3
    tensor[880:] = 0.0
    coarse, quick = progress(gpu_tensor_activity=tensor), fine(tensor)
    for second in range(100, 900, 5):
        expected = coarse.phase(START + second)
        assert expected == quick.phase(START + second + 0.9)
        # Until a second is over, what is known is the one before.
        assert coarse.phase(START + second - 1) == quick.phase(START + second + 0.8)
    found = quick.loss(START + 600.3, START + 870.9, 60)
    assert pytest.approx(coarse.loss(START + 600, START + 870, 60)) == found
    assert pytest.approx(0.25) == found


def test_fine_samples_in_parts_are_those_at_once() -> None:
    tensor = steady(300)
    tensor[200:] = 0.2
    whole, parts = fine(tensor), ProgressTracker(PeerwatchConfig(), 60, sample_seconds=0.1)
    samples = np.repeat(tensor, 10) * (1 + 0.5 * (-1.0) ** np.arange(3000))
    for left in range(0, 3000, 37):
        here = np.arange(max(0, left - 20), min(3000, left + 37))
        parts.write(TENSOR, 0.02, START + here / 10, samples[here])
    for tracker in (whole, parts):
        tracker.phase(START + 299.9)
    asked = (START + 200, START + 299.9, 60)
    assert pytest.approx(0.5) == whole.loss(*asked) == parts.loss(*asked)


def test_samples_that_come_late_are_taken_in() -> None:
    tensor = steady(800)
    tensor[600:] = 0.2
    late = progress()
    for now in range(5, 800, 5):
        # What is younger than four seconds is not there yet.
        here = np.arange(max(0, now - 20), now)
        levels = np.where(here < now - 4, tensor[here], np.nan)
        late.write(TENSOR, 0.02, START + here, levels)
    late.phase(START + 794)
    assert pytest.approx(0.5, abs=0.01) == late.loss(START + 600, START + 790, 60)


def test_what_only_one_role_loses_is_its_share_of_the_work() -> None:
    whole = ProgressTracker(PeerwatchConfig(), 60)
    times = np.arange(START, START + 900)
    steady, falls = np.full(900, 0.5), np.repeat([0.5, 0.3], [500, 400])
    roles = whole.of_roles(["a", "b"])
    for tracker, levels in ((whole, falls), (roles["a"], falls), (roles["b"], steady)):
        tracker.write("gpu_tensor_activity", 0.01, times, levels)
    whole.phase(START + 899)
    assert pytest.approx(0.0, abs=1e-6) == whole.loss(START + 500, START + 899, 60)
    assert {"a"} == set(whole.of_roles(["a"]))
    whole.phase(START + 899)
    assert pytest.approx(0.4, abs=0.01) == whole.loss(START + 500, START + 899, 60)


def counted(step_seconds: float = 2.0, stops: int | None = None, seconds: int = 900) -> np.ndarray:
    """Return the steps finished by every second, up to a stop."""
    ends = np.arange(0, stops or seconds, step_seconds)
    return np.searchsorted(ends, np.arange(seconds), side="right").astype(float)


def counted_phase(second: int, steps: np.ndarray, **series: np.ndarray) -> Phase:
    """Return the phase of a job whose steps are counted."""
    tracker = ProgressTracker(PeerwatchConfig(), least_seconds=60, counters={"rank_steps": True})
    for name, levels in ({"rank_steps": steps} | series).items():
        floor = 0.0 if name == "rank_steps" else 0.02
        tracker.write(name, floor, START + np.arange(len(levels)), levels)
    found = Phase()
    for time in range(0, second + 1, 5):
        found = tracker.phase(START + time)
    return found


@pytest.mark.parametrize("step_seconds", [0.4, 2.0, 30.0])
def test_a_job_without_gpus_waits_once_its_steps_stop(step_seconds: float) -> None:
    steps = counted(step_seconds, stops=600)
    assert counted_phase(595, steps) == Phase(
        known=True, counted=True, step_seconds=counted_phase(595, steps).step_seconds
    )
    # A fifth of its step rate, and the seconds that are averaged.
    noticed = 620 + 5 * math.ceil(step_seconds)
    found = counted_phase(noticed, steps)
    assert found.waiting
    # The wait began with the last step, however long it took to be sure of it.
    assert noticed - 601 <= found.noticed_seconds <= noticed - 599 + step_seconds
    assert not counted_phase(600, steps).waiting


def test_an_evaluation_makes_no_steps_but_computes() -> None:
    steps = counted(stops=600)
    busy, tensor = steady(900, 0.99), steady(900)
    assert not counted_phase(700, steps, gpu_duty_cycle=busy, gpu_tensor_activity=tensor).waiting
    tensor[600:] = 0.001
    assert counted_phase(620, steps, gpu_duty_cycle=busy, gpu_tensor_activity=tensor).waiting


def test_a_job_that_has_waited_for_long_still_waits_and_then_works() -> None:
    """Its GPUs' usual level of ten minutes has become that of a job that waits."""
    steps = counted(stops=700, seconds=3000)
    steps[2600:] += np.arange(400) // 2
    tensor = steady(3000)
    tensor[700:2600] = 0.05
    busy = steady(3000, 0.99)
    for second in (720, 1180, 1500, 2590):
        found = counted_phase(second, steps, gpu_duty_cycle=busy, gpu_tensor_activity=tensor)
        assert found.waiting, second
    assert not counted_phase(2660, steps, gpu_duty_cycle=busy, gpu_tensor_activity=tensor).waiting


def test_steps_that_go_on_are_no_wait_whatever_the_gpus_show() -> None:
    tensor = steady(900)
    tensor[600:] = 0.001
    found = counted_phase(
        700, counted(), gpu_duty_cycle=steady(900, 0.99), gpu_tensor_activity=tensor
    )
    assert not found.waiting


def test_long_steps_wait_as_soon_as_one_is_overdue_and_the_gpus_do_nothing() -> None:
    steps, tensor = counted(30.0, stops=600), steady(900)
    tensor[600:] = 0.001
    series = {BUSY: steady(900, 0.99), TENSOR: tensor}
    assert not counted_phase(610, steps, **series).waiting
    assert counted_phase(650, steps, **series).waiting


def test_a_counter_that_stops_coming_leaves_the_word_to_the_gpus() -> None:
    steps, tensor = counted(), steady(900)
    steps[600:] = np.nan
    tensor[600:] = 0.001
    assert counted_phase(
        700, steps, gpu_duty_cycle=steady(900, 0.99), gpu_tensor_activity=tensor
    ).waiting


def test_the_loss_of_a_job_whose_steps_are_counted() -> None:
    ends = np.concatenate([np.arange(0, 600, 2.0), np.arange(600, 900, 2.5)])
    steps = np.searchsorted(ends, np.arange(900), side="right").astype(float)
    tracker = ProgressTracker(PeerwatchConfig(), least_seconds=60, counters={"rank_steps": True})
    tracker.write("rank_steps", 0.0, START + np.arange(900), steps)
    tracker.phase(START + 895)
    assert pytest.approx(0.2, abs=0.01) == tracker.loss(START + 600, START + 895, 60)


def test_a_wait_tells_how_long_a_pause_is_ordinary_for_the_job() -> None:
    ends = np.concatenate([np.arange(0, 300, 2.0), np.arange(360, 600, 2.0)])
    steps = np.searchsorted(ends, np.arange(900), side="right").astype(float)
    # Half as long again is ordinary.
    assert counted_phase(700, steps).pause_seconds == pytest.approx(1.5 * 62, abs=3)


def test_collectives_that_are_completed_are_work_though_no_step_is() -> None:
    steps, collectives = counted(stops=600), counted(0.1)
    tracker = ProgressTracker(
        PeerwatchConfig(), least_seconds=60, counters={"rank_steps": True, "collectives": False}
    )
    for name, values in (("rank_steps", steps), ("collectives", collectives)):
        tracker.write(name, 0.0, START + np.arange(900), values)
    assert not tracker.phase(START + 700).waiting
    collectives[710:] = collectives[710]
    tracker.write("collectives", 0.0, START + np.arange(900), collectives)
    assert tracker.phase(START + 740).waiting


def test_collectives_tell_no_step_rate() -> None:
    tracker = ProgressTracker(PeerwatchConfig(), least_seconds=60, counters={"collectives": False})
    tracker.write("collectives", 0.0, START + np.arange(1800), counted(0.1, seconds=1800))
    assert tracker.phase(START + 1799).known
    assert tracker.step_rate(START + 1799) is None


def stopped(
    seconds: int, at_work: float, after: float, tells: str = TENSOR
) -> dict[str, np.ndarray]:
    """Return levels of a job that stopped at second 900 and has stood for so long."""
    levels = np.full(900 + seconds, at_work)
    levels[900:] = after
    return {tells: levels}


@pytest.mark.parametrize("seconds", [500, 900, 2600])
@pytest.mark.parametrize(
    "series",
    [("gpu_tensor_activity", 0.4, 0.001), ("gpu_power", 500.0, 80.0)],
    ids=["below its floor", "above its floor"],
)
def test_who_stands_still_for_long_is_known_to(
    seconds: int, series: tuple[str, float, float]
) -> None:
    tells, at_work, after = series
    tracker = progress(**stopped(seconds, at_work, after, tells))
    tracker.phase(START + 899 + seconds)
    assert seconds == tracker.still_seconds(START + 899 + seconds)


def test_a_kernel_now_and_then_is_no_work() -> None:
    series = stopped(900, 0.4, 0.001)
    series[TENSOR][1000::60] = 0.4
    tracker = progress(**series)
    tracker.phase(START + 1799)
    assert 900 == tracker.still_seconds(START + 1799)


def test_who_works_or_paused_or_never_worked_or_is_counted_does_not_stand_still() -> None:
    paused = steady(1800)
    paused[1600:1700] = 0.0
    # Nobody samples it any more: then nothing is known, which is not standing still.
    unseen = steady(1800)
    unseen[1500:] = np.nan
    others = {
        "works": steady(1800),
        "paused": paused,
        "never": steady(1800, 0.001),
        "unseen": unseen,
    }
    for name, levels in others.items():
        tracker = progress(gpu_tensor_activity=levels)
        tracker.phase(START + 1799)
        assert tracker.still_seconds(START + 1799) is None, name
    steps = counted(stops=900, seconds=1800)
    tracker = ProgressTracker(PeerwatchConfig(), 60, counters={"rank_steps": True})
    tracker.write("rank_steps", 0.0, START + np.arange(1800), steps)
    tracker.write(TENSOR, 0.02, START + np.arange(1800), stopped(900, 0.4, 0.0)[TENSOR])
    tracker.phase(START + 1799)
    assert tracker.still_seconds(START + 1799) is None
