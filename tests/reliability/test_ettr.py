from __future__ import annotations

import math
import random

import pytest

from peerwatch_reliability.accounting.ettr import (
    Plan,
    checkpoint_seconds_for,
    expected_ettr,
    optimal_checkpoint_seconds,
)


def plan(gpus, rate=6.5e-3, checkpoint=60.0, restart=5.0, queue=0.0, write=0.0):
    """Return a plan of minutes."""
    return Plan(gpus / 8, rate, 60 * checkpoint, 60 * restart, 60 * queue, 60 * write)


@pytest.mark.parametrize(
    ("gpus", "hours", "within"), [(16_384, 1.80, 0.01), (131_072, 0.225, 0.005)]
)
def test_mean_time_to_failure(gpus, hours, within):
    assert plan(gpus).mttf_seconds / 3600 == pytest.approx(hours, abs=within)


# The published numbers, and what the formulas give for their inputs.
@pytest.mark.parametrize(
    ("formula", "case", "expected"),
    [
        ("A", plan(16_000), 0.684),
        ("C", plan(16_000), 0.720),
        ("A", plan(16_000, checkpoint=5), 0.932),
        ("C", plan(16_000, checkpoint=5), 0.934),
        ("A", plan(8_000, checkpoint=30, queue=1), 0.906),
        ("C", plan(8_000, checkpoint=30, queue=1), 0.909),
        ("A", plan(2_048), 0.960),
        ("A", plan(4_096), 0.919),
        ("A", plan(100_000, 2.34e-3, 2, 2), 0.939),
        ("A", plan(100_000, 2.34e-3, 2, 2, 1), 0.920),
        ("A", plan(100_000, 2.34e-3, 2, 2, 2), 0.902),
        ("C", plan(100_000, 2.34e-3, 2, 2), 0.941),
        ("C", plan(100_000, 2.34e-3, 2, 2, 1), 0.922),
    ],
)
def test_expected(formula, case, expected):
    assert expected_ettr(case, formula) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("rate", "write", "expected"),
    [(6.5e-3, 5.0, 0.740), (1e-3, 5.0, 0.898), (6.5e-3, 1 / 6, 0.921)],
)
def test_checkpoints_that_halt_the_job(rate, write, expected):
    case = plan(12_000, rate, write=write)
    best = optimal_checkpoint_seconds(case, "B")
    assert best == pytest.approx(math.sqrt(2 * case.write_seconds / case.failures_per_second))
    case = plan(12_000, rate, checkpoint=best / 60, write=write)
    assert expected_ettr(case, "B") == pytest.approx(expected, abs=0.004)


def test_optimum_of_the_exact_form_is_one():
    case = plan(12_000, write=5.0)
    best = optimal_checkpoint_seconds(case)

    def at(seconds):
        return expected_ettr(plan(12_000, checkpoint=seconds / 60, write=5.0))

    assert at(best) > max(at(0.9 * best), at(1.1 * best))
    assert optimal_checkpoint_seconds(plan(12_000)) is None
    assert optimal_checkpoint_seconds(plan(12_000, 0.0, write=5.0)) is None


@pytest.mark.parametrize(
    ("formula", "queue", "minutes"), [("A", 0, 7.7), ("A", 1, 6.7), ("C", 0, 13.7)]
)
def test_interval_for_a_target(formula, queue, minutes):
    found = checkpoint_seconds_for(plan(100_000, queue=queue), 0.5, formula)
    assert found / 60 == pytest.approx(minutes, abs=0.1)
    assert checkpoint_seconds_for(plan(100_000), 0.99) is None


def test_nothing_fails():
    for formula in ("A", "B", "C"):
        assert expected_ettr(plan(1_000, 0.0), formula) == 1.0
    assert plan(1_000, 0.0).mttf_seconds == math.inf


def test_everything_fails():
    for formula in ("A", "B", "C"):
        assert expected_ettr(plan(10**9), formula) == 0.0


def test_a_short_run_pays_for_its_start():
    case = Plan(1, 0.0, restart_seconds=300, queue_seconds=300, run_seconds=3000)
    assert expected_ettr(case, "A") == pytest.approx(3000 / 3600)


@pytest.mark.parametrize(
    "case", [plan(16_000), plan(100_000, checkpoint=7), plan(30_000, restart=20, queue=10)]
)
def test_exact_form_against_simulated_jobs(case):
    draw = random.Random(1)
    productive = wall = 0.0
    for _ in range(40_000):
        life = draw.expovariate(case.failures_per_second)
        worked = max(0.0, life - case.restart_seconds)
        productive += worked // case.checkpoint_seconds * case.checkpoint_seconds
        wall += life + case.queue_seconds
    assert expected_ettr(case) == pytest.approx(productive / wall, abs=0.006)
