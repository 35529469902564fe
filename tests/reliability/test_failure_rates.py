from __future__ import annotations

import math
import random

import pytest

from peerwatch_reliability.accounting.components import rates_by_component
from peerwatch_reliability.accounting.failure_rates import (
    Exposed,
    differs,
    rates_by_cause,
    rates_by_size,
    scaling_of,
    size_class,
    weekly_dispersion,
)
from peerwatch_reliability.accounting.intervals import rate_of
from peerwatch_reliability.records import Window

DAY = 86_400.0


@pytest.mark.parametrize(
    ("gpus", "name"),
    [(0, "0"), (1, "1"), (2, "2"), (3, "4"), (8, "8"), (9, "16"), (1000, "1024"), (1025, "2048")],
)
def test_size_class(gpus, name):
    assert size_class(gpus) == name


def fleet(slope, seed=2, jobs=400):
    """Return attempts of jobs of 1 to 512 nodes that fail with nodes ** slope."""
    draw = random.Random(seed)
    found = []
    for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        for _ in range(jobs):
            life = draw.expovariate(5e-3 / DAY * nodes**slope)
            run = min(life, 3 * DAY)
            found.append(Exposed(8 * nodes, nodes, 0.0, run, life < 3 * DAY, "pcie"))
    return found


@pytest.mark.parametrize("slope", [1.0, 0.6, 1.3])
def test_slope(slope):
    found = [scaling_of(rates_by_size(fleet(slope, seed, 100), 1.0)) for seed in range(20)]
    assert sum(each.low <= slope <= each.high for each in found) >= 17
    differ = sum(each.p_value < 0.05 for each in found)
    assert differ <= 3 if slope == 1 else differ >= 19


def test_no_slope_from_one_size():
    sizes = rates_by_size([Exposed(8, 1, 0.0, DAY, True, "pcie")], 1.0)
    assert scaling_of(sizes) is None
    assert scaling_of([]) is None


def test_the_line():
    sizes = {each.size_class: each for each in rates_by_size(fleet(1.0), 1.0)}
    for each in sizes.values():
        value, low, high = each.jobs.mean_time
        assert (
            low <= each.expected_mttf_seconds <= high
            or abs(math.log(value / each.expected_mttf_seconds)) < 0.3
        )
    assert sizes["4096"].expected_mttf_seconds == pytest.approx(DAY / (5e-3 * 512), rel=0.1)


def test_a_size_without_failure_has_a_bound():
    (only,) = rates_by_size([Exposed(8, 1, 0.0, DAY, False, "")], 1.0)
    assert only.jobs.value is None
    assert only.jobs.high * DAY == pytest.approx(2.9957, abs=0.001)
    assert only.expected_mttf_seconds is None


def test_by_cause():
    window = Window(0.0, 28 * DAY)
    attempts = [Exposed(8, 1, DAY * n, DAY, n % 4 == 0, "pcie") for n in range(28)]
    ((name, rate),) = rates_by_cause(attempts, window, 1000.0).items()
    assert (name, rate.count, rate.value) == ("pcie", 7, 0.007)


def test_bursts_show_in_the_weeks():
    window = Window(0.0, 70 * DAY)
    assert weekly_dispersion([DAY * n for n in range(70)], window) == 1.0
    assert weekly_dispersion([60.0 * n for n in range(70)], window) == pytest.approx(70.0)
    assert weekly_dispersion([1.0, 2.0], Window(0.0, 20 * DAY)) == 1.0


@pytest.mark.parametrize(
    ("before", "after", "dispersion", "rose"),
    [
        (28, 14, 1.0, True),
        (28, 14, 4.0, False),
        (28, 9, 1.0, False),
        (28, 0, 1.0, False),
        (0, 0, 1.0, False),
    ],
)
def test_whether_a_rate_rose(before, after, dispersion, rose):
    earlier, later = rate_of(before, 28.0, dispersion), rate_of(after, 7.0, dispersion)
    assert differs(earlier, later) == rose


def test_of_single_components():
    """Of 10 nodes in 100 days, 4 failures of 80 GPUs and one of a host; no port was counted."""
    window = Window(0.0, 100 * DAY)
    causes = ["gpu_memory", "pcie", "nvlink", "gpu_driver", "node_fail", "network_link"]
    ends = [Exposed(8, 1, 15 * n * DAY, DAY, True, cause) for n, cause in enumerate(causes)]
    found = rates_by_component(ends, window, 1000.0, {"gpu": 8.0})
    assert {name: each.failures for name, each in found.items()} == {
        "gpu": 4,
        "network_port": 1,
        "host": 1,
    }
    assert found["gpu"].rate.mean_time[0] == pytest.approx(8000 / 4)
    assert found["host"].rate.mean_time[0] == pytest.approx(1000)
    assert (found["network_port"].per_node, found["network_port"].rate) == (None, None)
