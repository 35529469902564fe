from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detector.fakes import config_for, metric
from peerwatch_detector import compiled
from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.continuity import DeviationTracker
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.effects import SUSPECT, deviate
from peerwatch_detector.detection.methods.peerwatch.levels import Scale
from peerwatch_detector.detection.methods.peerwatch.peers import job_median
from peerwatch_detector.detection.methods.peerwatch.rows import row_median
from peerwatch_detector.detection.methods.peerwatch.running_medians import RunningMedians
from peerwatch_detector.detection.methods.peerwatch.screening import (
    Corrected,
    about_median,
    screen,
)

METRIC = config_for(metric(floor=0.02, min_ratio=1.2)).detection_metrics()[0]
SCALE = Scale(0.02, by_factor=True)
LIMIT = SUSPECT * SCALE.min_effect_size(METRIC, 1.0)


def job(seed: int, units: int, missing: float, noise: float) -> tuple[np.ndarray, Usual]:
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, noise, (units, 30))).astype(np.float32)
    # A level that falls to nothing, a unit that is never seen, a step that nobody has.
    values[:, 12:14] *= rng.choice([0.0, 1.0])
    values[rng.random(values.shape) < missing] = np.nan
    values[:, rng.integers(30)] = np.nan
    offset = rng.normal(0, noise, units)
    offset[rng.random(units) < missing] = np.nan
    return values, Usual(offset, lambda: np.full(units, 0.01), 1.0)


@given(
    seed=st.integers(0, 100_000),
    units=st.integers(1, 40),
    missing=st.sampled_from([0.0, 0.02, 0.3, 0.9]),
    noise=st.sampled_from([0.0, 0.01, 0.05, 0.15]),
)
@example(seed=0, units=2, missing=0.0, noise=0.0)
def test_nobody_who_counts_is_screened_out(
    seed: int, units: int, missing: float, noise: float
) -> None:
    values, usual = job(seed, units, missing, noise)
    middle = job_median(values)
    corrected = Corrected()
    # Three steps of the same, as far as nobody deviates; then those that follow one by one.
    window = corrected.window(values, slice(0, 25), 25, usual)
    spans = np.array([(0, 15), (5, 20), (10, 25)])
    found = screen(window, spans, np.full(3, SCALE.floor), LIMIT)
    passed = {15 + 5 * step: known for step, known in enumerate(found)}
    for stop in (15, 20, 25, 30):
        columns = slice(stop - 15, stop)
        window = corrected.window(values, columns, min(30, stop + 10), usual)
        alone = screen(window, np.array([(0, 15)]), np.array([SCALE.floor]), LIMIT)
        compared = deviate(
            values[:, columns], middle[columns], usual, METRIC, SCALE, PeerwatchConfig()
        ).effects
        if stop in passed:
            np.testing.assert_array_equal(passed[stop], alone[0])
        elif stop == 15 + 5 * len(passed) <= 25:
            assert not len(alone)
        if len(alone):
            assert not (np.abs(compared) >= SUSPECT).any()
            assert np.isfinite(compared).tolist() == alone[0].tolist()


def calm(values: np.ndarray, usual: Usual) -> bool:
    window = Corrected().window(values, slice(14, 29), 30, usual)
    return len(screen(window, np.array([(0, 15)]), np.array([SCALE.floor]), LIMIT)) == 1


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_calm_job_is_screened_out(noise: float) -> None:
    values, usual = job(3, 40, 0.02, noise)
    assert calm(values, usual)
    values[7] *= np.float32(1.2)
    assert not calm(values, usual)


def test_before_the_first_sample_nobody_is_known() -> None:
    values, usual = job(3, 40, 0.0, 0.0)
    window = Corrected().window(values, slice(0, 0), 0, usual)
    assert [[False] * 40] == screen(window, np.array([(0, 0)]), np.ones(1), LIMIT).tolist()


@given(seed=st.integers(0, 10_000), units=st.integers(2, 12))
def test_about_the_median_are_the_values_of_a_sorted_step(seed: int, units: int) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 6, (9, units)).astype(np.float32)
    steps[rng.random(steps.shape) < 0.3] = np.nan
    others = np.isfinite(steps).sum(axis=1) - 1
    for step, count, found in zip(steps, others, about_median(steps, others), strict=True):
        if count >= 1:
            low = (count - 1) // 2
            expected = np.sort(step)[low : low + 3]
            np.testing.assert_array_equal(expected, found[: len(expected)])


@given(seed=st.integers(0, 10_000), least=st.integers(1, 8))
def test_running_medians_are_those_of_sorted_rows(seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([-1.5, -0.0, 0.0, 0.25, 3.0], (5, 12)).astype(np.float32)
    values += rng.choice([0.0, 1e-3, -1e3]) * rng.normal(0, 1, values.shape).astype(np.float32)
    medians = RunningMedians()
    for _ in range(12):
        values[:, rng.integers(12)] = rng.choice([np.nan, 0.5, -7.0, 1e30, -1e-30], 5)
        without = rng.choice(12, 3, replace=False)
        counted = values.copy()
        counted[:, without] = np.nan
        enough = np.isfinite(counted).sum(axis=1) >= least
        expected = np.where(enough, row_median(counted), np.nan)
        np.testing.assert_array_equal(expected, medians.of(values, without, least))


@pytest.mark.parametrize("fast", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize("step", [5.0, 0.5])
def test_what_passes_by_leaves_a_tracker_as_an_update_does(fast: bool, step: float) -> None:
    rng = np.random.default_rng(1)
    passed, updated = (DeviationTracker(10.0, step, step) for _ in range(2))
    for tracker in (passed, updated):
        tracker.follow(tuple("abcdefgh"))
    nobody = np.zeros(8, np.bool_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", fast)
        for time in np.cumsum(rng.choice([step, 2 * step, 300.0], 60)).tolist():
            evaluated = rng.random(8) < 0.7
            passed.pass_by(time, evaluated)
            updated.update(time, nobody, evaluated)
            np.testing.assert_array_equal(updated.quiet, passed.quiet)
            np.testing.assert_array_equal(updated.start, passed.start)
