"""Seconds and ticks: which settings are turned into which, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import BaseModel

from detector.fakes import (
    ONSET,
    START,
    a_deviation,
    a_finding,
    config_for,
    metric,
    node_names,
    shifted,
)
from peerwatch_detector.backtest.cases import Case
from peerwatch_detector.backtest.replay import cycles, replay
from peerwatch_detector.config import DetectorConfig, MetricConfig, Overrides
from peerwatch_detector.detection.steps import (
    COUNTS,
    LENGTHS,
    SAMPLES,
    UNTOUCHED,
    Ticks,
    in_ticks,
    peaks,
    with_peaks,
)
from peerwatch_detector.errors import CaseError
from peerwatch_detector.frame import JobFrame, from_grid, to_grid
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.store import EMPTY

STEPS = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 60.0]


def durations(model: type[BaseModel], section: str = "") -> Iterator[tuple[str, str]]:
    """Yield (section, name) of every setting that is a length of time."""
    for name, field in model.model_fields.items():
        if name.endswith("_seconds"):
            yield section, name
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from durations(kind, f"{section}.{name}".strip("."))


def test_every_duration_of_the_configuration_is_turned_into_something() -> None:
    declared = [*durations(DetectorConfig)]
    declared += [*durations(MetricConfig, "metrics.extra")]
    declared += [*durations(Overrides, "metrics.overrides")]
    treated = [
        (section, name)
        for kind in (LENGTHS, COUNTS, SAMPLES, UNTOUCHED)
        for section, names in kind.items()
        for name in names
    ]
    assert sorted(declared) == sorted(treated)


def test_a_step_of_a_second_changes_nothing() -> None:
    assert DetectorConfig() == in_ticks(DetectorConfig())
    config = config_for(similarity={"baseline_seconds": 300}, absent={"after_seconds": 7.5})
    assert config == in_ticks(config)


def test_below_a_second_durations_become_ticks() -> None:
    config = in_ticks(
        config_for(
            step_seconds=0.01,
            fill_limit_seconds=0.1,
            history_seconds=60,
            similarity={"baseline_seconds": 10},
            peerwatch={"level_seconds": 0.29},
            continuity={"threshold_seconds": 5, "gap_seconds": 0.3},
            minder={"fill_seconds": 1},
            absent={"after_seconds": 2},
        )
    )
    # 0.29 / 0.01 is 28.999999999999996.
    assert (10, 1000, 29, 100) == (
        config.fill_limit_seconds,
        config.similarity.baseline_seconds,
        config.peerwatch.level_seconds,
        config.minder.fill_seconds,
    )
    assert (500.0, 30.0, 200.0) == (
        config.continuity.threshold_seconds,
        config.continuity.gap_seconds,
        config.absent.after_seconds,
    )
    assert isinstance(config.peerwatch.level_seconds, int)


def test_above_a_second_only_samples_are_counted_differently() -> None:
    config = DetectorConfig(step_seconds=10)
    changed = in_ticks(config)
    assert (1, 60) == (changed.fill_limit_seconds, changed.minder.fill_seconds)
    sections = ("similarity", "peerwatch", "continuity", "zscore", "absent")
    assert all(getattr(config, name) == getattr(changed, name) for name in sections)


@pytest.mark.parametrize("step", STEPS)
def test_times_come_back_from_ticks_as_they_were(step: float) -> None:
    ticks = Ticks.of(step)
    finding = a_finding(since=START + 0.5, raised=START + 61.0)
    assert finding == ticks.finding_in_seconds(ticks.finding(finding))
    deviation = a_deviation(since=START + 1.0, seconds=3.0, threshold=4.0, quiet=0.5)
    counted = replace(
        deviation,
        since=deviation.since * ticks.per_second,
        seconds=3.0 * ticks.per_second,
        threshold=4.0 * ticks.per_second,
        quiet=0.5 * ticks.per_second,
    )
    assert deviation == ticks.deviation_in_seconds(counted)
    silent = ticks.job(Job("j", ("a",), {"a": START + 2.0})).absent_since
    assert {"a": (START + 2.0) * ticks.per_second} == silent


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
def test_the_same_samples_are_judged_alike_at_any_step(method: str) -> None:
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
            (one.node, one.metric, round(one.since / step), round(one.raised / step), one.score)
            for one in found
        ]
    assert "node-02" in {one[0] for one in seen[1.0]}
    assert ("node-04" in {one[0] for one in seen[1.0]}) == (method == "peerwatch")
    assert seen[1.0] == seen[0.1]


def test_what_a_judgement_says_is_in_seconds() -> None:
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
    assert [finding.since] == [one.since for one in why.metrics]
    assert "since 00:00:30 UTC" in why.sentence


def test_cutting_a_fine_case_short_changes_nothing_before_the_cut() -> None:
    values = shifted(4, 1200, {1: 0.3})
    config = config_for(metric(), **shortened(0.1), step_seconds=0.1)
    whole = replay(case_of(values, 0.1), config, EMPTY).findings
    assert len(whole) == 1
    for cut in (400, 420, 1000):
        left = replay(case_of(values[:, :cut], 0.1), config, EMPTY).findings
        assert [one for one in whole if one.raised <= cut * 0.1] == list(left)


def test_a_case_is_judged_at_its_own_steps() -> None:
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
