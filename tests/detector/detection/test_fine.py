"""Two degraded nodes of four, seen at 10 ms and hidden at 1 s (Minder, NSDI'25, section 6.6)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peerwatch_demo.simulator import FINE, FineFamily, coarser, simulate_fine
from peerwatch_demo.simulator.__main__ import main
from peerwatch_demo.simulator.fine import METRIC, UNIT
from peerwatch_detector.backtest.cases import Case, load_case
from peerwatch_detector.backtest.replay import replay
from peerwatch_detector.backtest.run import replay_cases
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.detection.job_detector import JobDetector
from peerwatch_detector.detection.pipeline import evaluate
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.models.store import EMPTY

SEED = 4
# The milder fault comes first and alone for long enough; one that names one node at a time finds
# it then, and the worse one afterwards.
ONE_AFTER_THE_OTHER = replace(FINE, seconds=55.0, apart=(9.0, 10.0))
TOGETHER = replace(FINE, seconds=45.0, apart=(0.0, 0.0))
LONG = replace(FINE, seconds=400.0, onset=(100.0, 101.0), apart=(0.0, 0.0))


def settings(method: str, step: float = 0.01, **metric: Any) -> DetectorConfig:
    return DetectorConfig.model_validate(
        {
            "method": method,
            "step_seconds": step,
            "history_seconds": 60,
            "cycle_seconds": 0.5,
            "fill_limit_seconds": 0.1,
            "prometheus": {"lag_seconds": 0.5},
            "metrics": {
                "enabled": [METRIC],
                "extra": [
                    {
                        "name": METRIC,
                        "unit": UNIT,
                        "recorded": METRIC,
                        "expression": METRIC,
                        "bounds": [0, 1e11],
                        "min_effect_size": 2e9,
                        "min_ratio": 1.2,
                        "direction": "low",
                        "peak_seconds": 1.5,
                    }
                    | metric
                ],
            },
            "similarity": {
                "baseline_seconds": 10,
                "largest_share": 0.5,
                # With four nodes no score exceeds 1.73.
                "threshold": 1.2,
            },
            "peerwatch": {"level_seconds": max(0.2, 5 * step)},
            "continuity": {"threshold_seconds": 5, "gap_seconds": 0.3, "clear_seconds": 5},
            "minder": {"fill_seconds": 1},
        }
    )


@cache
def case_with(family: FineFamily) -> Case:
    return simulate_fine("fine", replace(family, any_order=False), SEED, faulty=True)


def reached(case: Case) -> dict[str, float]:
    """Return what share of the line rate each node reaches in the last ten seconds."""
    values = case.frames[METRIC].values[:, -round(10 / case.step_seconds) :]
    peak = np.nanquantile(values, 0.99, axis=1) / FINE.line_rate
    return dict(zip(case.nodes, peak.tolist(), strict=True))


def degraded(case: Case) -> list[str]:
    """Return the faulty nodes, the one with more lanes left first."""
    share = reached(case)
    assert case.truth is not None
    return sorted(case.truth.nodes, key=share.__getitem__, reverse=True)


def flagged(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.node, finding.metric) for finding in findings]


@pytest.mark.parametrize("method", ["peerwatch", "minder"])
def test_two_of_four_nodes_are_found_at_ten_milliseconds(method: str) -> None:
    case = case_with(ONE_AFTER_THE_OTHER)
    first, second = degraded(case)
    share = reached(case)
    assert (0.6, 0.3) == (round(share[first], 1), round(share[second], 1))
    findings = replay(case, settings(method), EMPTY).findings
    assert [(first, METRIC), (second, METRIC)] == flagged(findings)
    assert case.truth is not None
    assert case.truth.onset_seconds is not None
    delays = [finding.raised - case.truth.onset_seconds for finding in findings]
    # The continuity threshold, and how long a peak is remembered; the second is 9 s later.
    assert 5 <= delays[0] <= 5 + 1.5 + 1
    assert 14 <= delays[1] <= 15 + 1.5 + 1


@pytest.mark.parametrize("method", ["peerwatch", "minder"])
def test_means_over_a_second_hide_them(method: str) -> None:
    fine = case_with(LONG)
    (first, second), share = degraded(fine), reached(fine)
    assert (0.6, 0.3) == (round(share[first], 1), round(share[second], 1))
    slow = coarser(fine, 1.0)
    assert (1.0, 400.0) == (slow.step_seconds, slow.seconds)
    sent = slow.frames[METRIC].values[:, 120:].mean(axis=1)
    assert sent.max() / sent.min() < 1.01
    # With the durations that are made for seconds.
    usual = DetectorConfig.model_validate(
        {
            "method": method,
            "metrics": settings(method).metrics.model_dump(),
            "similarity": {"threshold": 1.2, "largest_share": 0.5},
        }
    )
    assert () == replay(slow, usual, EMPTY).findings


def test_a_mean_over_a_second_hides_them_at_any_step() -> None:
    case = case_with(ONE_AFTER_THE_OTHER)
    frame = case.frames[METRIC]
    sums = np.nan_to_num(frame.values).cumsum(axis=1, dtype=np.float64)
    means = ((sums[:, 100:] - sums[:, :-100]) / 100).astype(np.float32)
    smooth = replace(frame, values=means, times=frame.times[:-100])
    config = settings("peerwatch", peak_seconds=None)
    assert () == replay(replace(case, frames={METRIC: smooth}), config, EMPTY).findings


def test_together_the_default_method_finds_both_and_the_papers_the_worse_one() -> None:
    case = case_with(TOGETHER)
    worse = degraded(case)[-1]
    assert case.truth is not None
    both = sorted(node for node, _ in flagged(replay(case, settings("peerwatch"), EMPTY).findings))
    assert list(case.truth.nodes) == both
    assert [(worse, METRIC)] == flagged(replay(case, settings("minder"), EMPTY).findings)


@pytest.mark.parametrize("resolution", [0.05, 0.5, 1.0])
def test_a_coarser_resolution_finds_both_too_and_evaluates_as_rarely(resolution: float) -> None:
    config = settings("peerwatch").model_dump(exclude_unset=True)
    config |= {
        "resolution_seconds": resolution,
        "peerwatch": {"level_seconds": max(0.2, 5 * resolution)},
    }
    case = case_with(TOGETHER)
    found = replay(case, DetectorConfig.model_validate(config), EMPTY).findings
    assert case.truth is not None
    assert list(case.truth.nodes) == sorted(node for node, _ in flagged(found))
    # Deviations begin where the job is evaluated.
    assert all((each.since / (5 * resolution)).is_integer() for each in found)


def test_once_the_worse_node_is_replaced_the_papers_method_finds_the_other() -> None:
    case, config = case_with(TOGETHER), settings("minder")
    worse = degraded(case)[-1]
    frame = case.frames[METRIC]
    rows = [index for index, node in enumerate(case.nodes) if node != worse]
    left = tuple(node for node in case.nodes if node != worse)
    rest = {METRIC: replace(frame, nodes=left, values=frame.values[rows])}
    detector = JobDetector(config, {METRIC: Identity()})
    detection = evaluate(detector, Job("j", left), rest, case.seconds)
    assert case.truth is not None
    assert set(case.truth.nodes) - {worse} == {finding.node for finding in detection.findings}


def test_the_direction_tells_two_slow_nodes_from_two_quick_ones() -> None:
    case = case_with(TOGETHER)
    bad = set(case.truth.nodes) if case.truth else set()
    either = replay(case, settings("peerwatch", direction="both"), EMPTY).findings
    assert {finding.node for finding in either} == set(case.nodes)
    assert {finding.node for finding in replay(case, settings("peerwatch"), EMPTY).findings} == bad


def test_nodes_that_deviate_alike_are_named_up_to_the_largest_share() -> None:
    case = case_with(replace(TOGETHER, widths=("x8", "x8")))
    assert case.truth is not None
    config = settings("peerwatch")
    quarter = config.similarity.model_copy(update={"largest_share": 0.25})
    assert () == replay(case, config.model_copy(update={"similarity": quarter}), EMPTY).findings
    found = replay(case, config, EMPTY).findings
    assert set(case.truth.nodes) == {finding.node for finding in found}


@pytest.mark.parametrize("method", ["peerwatch", "minder"])
def test_nobody_is_named_in_a_healthy_job(method: str) -> None:
    for seed in (SEED, SEED + 1):
        case = simulate_fine("calm", replace(FINE, seconds=40.0, pauses=1.0), seed, faulty=False)
        assert case.truth is not None
        assert (None, ()) == (case.truth.fault, case.truth.nodes)
        assert () == replay(case, settings(method), EMPTY).findings


def test_every_node_sends_the_same_however_slow_it_is() -> None:
    case = case_with(TOGETHER)
    values = np.nan_to_num(case.frames[METRIC].values)
    bursts = (values > 0.02 * FINE.line_rate).mean(axis=1)
    slow = [case.nodes.index(node) for node in degraded(case)]
    quick = sorted(set(range(4)) - set(slow))
    assert bursts[slow].min() > 1.1 * bursts[quick].max()
    total = values.sum(axis=1)
    assert total.max() / total.min() < 1.03
    assert values.max() <= 1.02 * FINE.line_rate


def test_the_command_writes_cases_that_the_backtest_reads(tmp_path: Path) -> None:
    arguments = ["--family", "fine", "--cases", "2", "--seed", "7", str(tmp_path)]
    assert 0 == main(arguments)
    faulty, calm = (load_case(tmp_path / f"fine-{seed}") for seed in (7, 8))
    assert (0.01, 60.0, 6000) == (
        faulty.step_seconds,
        faulty.seconds,
        faulty.frames[METRIC].values.shape[1],
    )
    assert faulty.truth is not None
    assert calm.truth is not None
    assert ("pcie_downgrade", 2, 0) == (
        faulty.truth.fault,
        len(faulty.truth.nodes),
        len(calm.truth.nodes),
    )
    folders = [tmp_path / "fine-7", tmp_path / "fine-8"]
    first, second = replay_cases(folders, {"default": settings("peerwatch")}, EMPTY)
    assert ("", "") == (first.error, second.error)
    assert set(faulty.truth.nodes) == {finding.node for finding in first.findings["default"]}
    assert () == second.findings["default"]


def test_the_same_seed_gives_the_same_fine_case() -> None:
    first, again, other = (simulate_fine("a", FINE, seed, faulty=True) for seed in (1, 1, 2))
    assert first.truth == again.truth != other.truth
    np.testing.assert_array_equal(first.frames[METRIC].values, again.frames[METRIC].values)
