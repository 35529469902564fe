"""One timeline gives exact totals and samples second by second, and both say the same."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from peerwatch_demo.job.activity import CYCLE_SECONDS, SIGNALS, Activity
from peerwatch_demo.job.timeline import Phase, Stretch, Timeline
from peerwatch_demo.job.workload import Workload


def crash() -> Timeline:
    """A job that stalls, then waits for a rank, and halts."""
    timeline = Timeline()
    timeline.add(Phase.STALL, 20, 30)
    timeline.add(Phase.WAIT, 25, 60)
    timeline.add(Phase.HALT, 60)
    timeline.slow(0.5, 10, 22)
    return timeline


def test_stretches_cover_all_of_time_and_the_later_wins() -> None:
    assert [
        Stretch(-inf, 10),
        Stretch(10, 20, speed=0.5),
        Stretch(20, 22, Phase.STALL, 0.5),
        Stretch(22, 25, Phase.STALL),
        Stretch(25, 30, Phase.WAIT),
        Stretch(30, 60, Phase.WAIT),
        Stretch(60, inf, Phase.HALT),
    ] == crash().stretches()
    assert [Stretch(-inf, inf)] == Timeline().stretches()


def test_a_fault_that_never_comes_changes_nothing() -> None:
    timeline = Timeline()
    timeline.add(Phase.HALT, inf)
    assert Activity(Timeline()).total("power", 500.0) == Activity(timeline).total("power", 500.0)


def test_samples_and_totals_follow_the_same_timeline() -> None:
    levels = {"gpu_duty_cycle": (1.0, 0.35, 0.05, 1.0, 0.0)}
    work = Workload(3, 80, levels, np.ones(80), crash())
    activity = Activity(crash())
    sampled = work.expected("gpu_duty_cycle")
    assert [(Phase.STALL, 0.5), (Phase.HALT, 1.0)] == [crash().at(time) for time in (21, 79)]
    for second in (21, 26, 45, 60, 79):
        assert pytest.approx(sampled[second]) == activity.mean("busy", second + 1.0)


def test_steps_stand_still_while_the_job_waits() -> None:
    activity = Activity(crash())
    done, ended = activity.steps(24.9)
    assert [(done, ended)] * 3 == [activity.steps(time) for time in (26.0, 59.0, 500.0)]
    # Ten seconds at the usual speed and ten at half of it.
    assert 3 == done - activity.steps(0.0)[0]


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_steady_job_does_in_a_cycle_what_one_in_steps_does(signal: str) -> None:
    steps, steady = Activity(Timeline()), Activity(Timeline(), steady=True)

    assert pytest.approx(steps.total(signal, CYCLE_SECONDS)) == steady.total(signal, CYCLE_SECONDS)
    means = [steady.mean(signal, time, 0.1) for time in (1.0, 3.5, 4.8, 300.0)]
    assert pytest.approx([means[0]] * 4) == means


def test_a_steady_job_that_slows_does_less_in_every_second() -> None:
    timeline = Timeline()
    timeline.slow(0.5, 100.0)
    steady = Activity(timeline, steady=True)

    assert pytest.approx(0.5 * steady.mean("tensor", 50.0)) == steady.mean("tensor", 150.0)
    assert Activity(timeline).steps(150.0) == steady.steps(150.0)
