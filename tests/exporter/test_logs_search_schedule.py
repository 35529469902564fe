"""Neither searching for logs nor reading them may cost a job much."""

from __future__ import annotations

import pytest

from peerwatch_exporter.sources.logs.search_schedule import SearchSchedule, rest_seconds


@pytest.mark.parametrize(
    ("cpu_seconds", "after"), [(0.001, 2.0), (0.02, 2.0), (0.1, 10.0), (0.5, 50.0), (30.0, 60.0)]
)
def test_searches_take_a_hundredth_of_a_core(cpu_seconds, after):
    schedule = SearchSchedule()
    assert schedule.due == 0.0
    schedule.searched(1000.0, cpu_seconds)
    assert pytest.approx(1000.0 + after) == schedule.due


@pytest.mark.parametrize(("cpu_seconds", "after"), [(0.001, 0.01), (0.5, 5.0), (30.0, 60.0)])
def test_for_new_ranks_the_next_search_comes_sooner(cpu_seconds, after):
    schedule = SearchSchedule()
    schedule.searched(1000.0, cpu_seconds)
    schedule.hurry()
    assert pytest.approx(1000.0 + after) == schedule.due


@pytest.mark.parametrize(
    ("lasted", "cpu_seconds", "rest"),
    [(0.1, 0.01, 0.4), (0.9, 0.01, 0.0), (2.0, 1.5, 1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.5)],
)
def test_a_flood_leaves_half_of_a_core(lasted, cpu_seconds, rest):
    assert pytest.approx(rest) == rest_seconds(0.5, lasted, cpu_seconds)
