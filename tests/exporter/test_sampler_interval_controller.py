"""The sampler's clock: deadlines, lateness, and what it costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.sampler.interval_controller import IntervalController, affordable_interval

MILLISECOND = 1_000_000


class Machine:
    """A clock that only sleep and work move, and a CPU meter."""

    def __init__(self):
        self.now = 0
        self.cpu = 0.0

    def sleep(self, seconds):
        self.now += round(seconds * 1e9)

    def work(self, milliseconds):
        self.now += round(milliseconds * MILLISECOND)

    def controller(self, limit=1.0):
        return IntervalController(0.001, limit, lambda: self.now, self.sleep, lambda: self.cpu)


def test_samples_stand_on_a_fixed_grid_however_long_they_take():
    machine = Machine()
    controller = machine.controller()
    times = []
    for took in (0.1, 0.9, 0.4, 0.2):
        times.append(controller.wait() / MILLISECOND)
        machine.work(took)

    assert [0, 1, 2, 3] == times
    assert (4, 0) == (controller.samples, controller.late)


def test_missed_deadlines_are_skipped_and_counted():
    machine = Machine()
    controller = machine.controller()
    controller.wait()
    machine.work(5.2)
    second, third = controller.wait(), controller.wait()

    # Those at 1 to 4 ms were missed; the one at 5 ms was in time enough.
    assert (5.2, 6) == (second / MILLISECOND, third / MILLISECOND)
    assert (3, 4) == (controller.samples, controller.late)


def test_sample_more_than_half_an_interval_late_counts():
    machine = Machine()
    controller = machine.controller()
    controller.wait()
    machine.work(1.7)
    controller.wait()

    assert 1 == controller.late


def run_second(machine, controller, cpu_per_sample):
    end = machine.now + 1_000_000_000
    while machine.now < end:
        controller.wait()
        machine.cpu += cpu_per_sample
    controller.assess(machine.now)


def test_interval_is_stretched_until_the_cost_is_within_the_limit():
    machine = Machine()
    controller = machine.controller(limit=0.01)
    for _ in range(5):
        run_second(machine, controller, 50e-6)

    assert controller.is_stretched
    assert pytest.approx(0.005 / 0.9, rel=0.05) == controller.interval_seconds
    assert pytest.approx(controller.interval_seconds, rel=0.05) == controller.achieved_seconds
    assert pytest.approx(0.009, rel=0.1) == controller.cpu_ratio


def test_interval_comes_back_when_samples_are_cheap_again():
    machine = Machine()
    controller = machine.controller(limit=0.01)
    for cost in [50e-6] * 5 + [2e-6] * 8:
        run_second(machine, controller, cost)

    assert not controller.is_stretched
    assert 0.001 == controller.interval_seconds


@given(
    st.floats(0.001, 0.1),
    st.floats(0.001, 1.0),
    st.floats(0, 50),
    st.floats(0.001, 1.0),
)
def test_interval_never_leaves_its_limits(wished, interval, ratio, limit):
    found = affordable_interval(max(wished, interval), wished, ratio, limit)

    assert wished <= found <= max(1.0, wished)
