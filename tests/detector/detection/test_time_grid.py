"""Samples at any step: lengths of time among them, and that all steps are evaluated alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from detector.fakes import (
    ONSET,
    START,
    config_for,
    metric,
    node_names,
    shifted,
)
from peerwatch_detector.backtest.cases import Case
from peerwatch_detector.backtest.replay import cycles, replay
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.preprocess import peaks, with_peaks
from peerwatch_detector.detection.time_grid import TimeGrid, elapsed, exact_times
from peerwatch_detector.errors import CaseError
from peerwatch_detector.frame import JobFrame, from_grid, to_grid
from peerwatch_detector.models.store import EMPTY

STEPS = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 60.0]


def test_lengths_of_time_become_numbers_of_samples() -> None:
    config = config_for(
        step_seconds=0.01,
        fill_limit_seconds=0.1,
        history_seconds=60,
        similarity={"baseline_seconds": 10},
        peerwatch={"level_seconds": 0.29},
        continuity={"threshold_seconds": 5, "gap_seconds": 0.3},
        minder={"fill_seconds": 1},
        absent={"after_seconds": 2},
    )
    # 0.29 / 0.01 is 28.999999999999996.
    lengths = (
        config.fill_limit_seconds,
        config.similarity.baseline_seconds,
        config.peerwatch.level_seconds,
        config.minder.fill_seconds,
    )
    assert [10, 1000, 29, 100] == [config.steps_in(length) for length in lengths]
    assert (0.01, 0.05, 3000) == (
        config.resolution_seconds,
        config.evaluation_seconds,
        config.context_steps,
    )


def test_samples_further_apart_than_a_second_are_evaluated_on_a_grid_of_seconds() -> None:
    config = DetectorConfig(step_seconds=10)
    assert (1, 60) == (
        config.steps_in(config.fill_limit_seconds),
        config.steps_in(config.minder.fill_seconds),
    )
    assert (1.0, 5.0, 30) == (
        config.resolution_seconds,
        config.evaluation_seconds,
        config.context_steps,
    )


@given(
    step=st.sampled_from(STEPS),
    first=st.integers(0, 1 << 34),
    count=st.integers(1, 50),
    newest=st.integers(-5, 60),
    length=st.integers(0, 60),
)
def test_columns_are_the_samples_of_the_last_seconds(
    step: float, first: int, count: int, newest: int, length: int
) -> None:
    times = from_grid(np.arange(first, first + count), step)
    grid = TimeGrid.of(times, step)
    columns = grid.columns(from_grid(np.array(first + newest), step).item(), length * step)
    expected = [at for at in range(count) if newest - length < at <= newest]
    assert expected == [*range(count)][columns]
    np.testing.assert_array_equal(times, [grid.time(at) for at in range(count)])


def test_equal_lengths_of_time_are_equal_numbers() -> None:
    # As floats 0.3 - 0.1 and 1700000000.3 - 1700000000.1 are two numbers, and neither is 0.2.
    assert 0.2 == elapsed(0.1, 0.3) == elapsed(START + 0.1, START + 0.3)
    times = exact_times(np.arange(4) * 0.1, 0.1)
    assert [0.0, 0.1, 0.2, 0.3] == times.tolist()


@given(step=st.sampled_from(STEPS), first=st.integers(0, 1 << 34), count=st.integers(1, 50))
def test_the_grid_gives_back_its_steps(step: float, first: int, count: int) -> None:
    steps = np.arange(first, first + count)
    times = from_grid(steps, step)
    np.testing.assert_array_equal(steps, to_grid(times, step))
    # As a person writes them: 0.3, not 0.30000000000000004.
    assert float(f"{first * round(step * 100) / 100:.2f}") == times[0]


values_with_holes = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 40)),
    elements=st.floats(-100, 100, width=32) | st.just(np.nan),
)


@given(values=values_with_holes, steps=st.integers(1, 50))
def test_peaks_are_the_highest_of_the_last_values(values: np.ndarray, steps: int) -> None:
    slow = np.full_like(values, np.nan)
    for row, column in np.argwhere(np.isfinite(values)):
        part = values[row, max(0, column - steps + 1) : column + 1]
        slow[row, column] = np.nanmax(part)
    np.testing.assert_array_equal(slow, peaks(values, steps))


def test_peaks_of_gpus_are_taken_before_their_mean() -> None:
    per_gpu = np.array([[[4, 0, 0, 0], [0, 0, 8, 0]]], dtype=np.float32)
    times = np.arange(4.0)
    frame = JobFrame("j", "m", ("a",), times, per_gpu.mean(axis=1), ("0", "1"), per_gpu)
    np.testing.assert_array_equal([[2, 2, 6, 4]], with_peaks(frame, 3, 1).values)
    assert frame is with_peaks(frame, None, 1)
    assert frame is with_peaks(frame, 1, 1)


def case_of(values: np.ndarray, step: float) -> Case:
    times = from_grid(np.arange(values.shape[1]), step)
    frame = JobFrame("job-1", "load", node_names(len(values)), times, values)
    return Case("one", "job-1", step, {"load": frame}, None, {"load": "ratio"})


# Every duration of the configuration, in steps.
IN_STEPS: dict[str, Any] = {
    "cycle_seconds": 15,
    "history_seconds": 900,
    "fill_limit_seconds": 10,
    "prometheus": {"lag_seconds": 2},
    "similarity": {"baseline_seconds": 600},
    "peerwatch": {
        "level_seconds": 15,
        "fast_seconds": 45,
        "fast_pair_seconds": 25,
        "slack_seconds": 60,
        "patience_seconds": 110,
    },
    "continuity": {"threshold_seconds": 100, "gap_seconds": 10, "clear_seconds": 120},
    "zscore": {"period_seconds": 150},
    "absent": {"after_seconds": 15, "threshold_seconds": 60},
    "minder": {"fill_seconds": 600},
}


def shortened(step: float, settings: dict[str, Any] = IN_STEPS) -> dict[str, Any]:
    return {
        name: shortened(step, value)
        if isinstance(value, dict)
        else round(value * step)
        if name == "fill_seconds"
        else value * step
        for name, value in settings.items()
    }


@pytest.mark.parametrize("method", ["peerwatch", "minder", "zscore"])
def test_the_same_samples_are_evaluated_alike_at_any_step(method: str) -> None:
    values = shifted(6, 1500, {2: 0.3})
    # A vanished node too: silence is told in seconds.
    values[4, 1200:] = np.nan
    seen = {}
    for step in (1.0, 0.1):
        settings = shortened(step) | {"step_seconds": step, "method": method}
        settings["similarity"] = settings["similarity"] | {"threshold": 1.5}
        if method == "zscore":
            settings["zscore"] = settings["zscore"] | {"threshold": 1.5}
        config = config_for(metric(), **settings)
        found = replay(case_of(values, step), config, EMPTY).findings
        seen[step] = [
            (
                finding.node,
                finding.metric,
                round(finding.since / step),
                round(finding.raised / step),
                round(finding.score, 9),
            )
            for finding in found
        ]
    assert "node-02" in {finding[0] for finding in seen[1.0]}
    assert ("node-04" in {finding[0] for finding in seen[1.0]}) == (method == "peerwatch")
    assert seen[1.0] == seen[0.1]


def test_what_an_evaluation_says_is_in_seconds() -> None:
    values = shifted(4, 1200, {1: 0.3})
    config = config_for(metric(), **shortened(0.1), step_seconds=0.1)
    last = None
    for detection in cycles(case_of(values, 0.1), config, EMPTY):
        last = detection
    assert last is not None
    (finding,) = last.findings
    assert ONSET / 10 <= finding.since <= ONSET / 10 + 1
    assert 119.0 < last.time < 120.0
    (deviation,) = last.deviations
    assert (finding.since, 10.0) == (deviation.since, deviation.threshold)
    assert 88.0 < deviation.seconds < 90.0
    assert deviation.seconds == last.continuity["load"]["node-01"]
    why = last.explanations[finding]
    assert finding.raised - 2 <= why.made <= finding.raised
    assert [finding.since] == [metric_evidence.since for metric_evidence in why.metrics]
    assert "since 00:00:30 UTC" in why.sentence


def test_cutting_a_fine_case_short_changes_nothing_before_the_cut() -> None:
    values = shifted(4, 1200, {1: 0.3})
    config = config_for(metric(), **shortened(0.1), step_seconds=0.1)
    whole = replay(case_of(values, 0.1), config, EMPTY).findings
    assert len(whole) == 1
    for cut in (400, 420, 1000):
        left = replay(case_of(values[:, :cut], 0.1), config, EMPTY).findings
        assert [finding for finding in whole if finding.raised <= cut * 0.1] == list(left)


def test_a_case_is_evaluated_at_its_own_steps() -> None:
    values = shifted(4, 1200, {1: 0.3})
    config = config_for(
        metric(),
        similarity={"baseline_seconds": 20},
        peerwatch={"level_seconds": 5},
        continuity={"threshold_seconds": 10},
    )
    (finding,) = replay(case_of(values, 0.1), config, EMPTY).findings
    # On a grid of half seconds.
    assert ONSET / 10 <= finding.since <= ONSET / 10 + 5
    assert 0 == finding.since * 2 % 1 != finding.since % 5


def test_a_case_whose_steps_do_not_fit_says_why() -> None:
    case = case_of(shifted(4, 100, {}), 20.0)
    with pytest.raises(CaseError) as caught:
        replay(case, config_for(), EMPTY)
    for part in ("steps of 20 s", "peerwatch: level_seconds 15 must be at least 20", "raise it"):
        assert part in str(caught.value)
