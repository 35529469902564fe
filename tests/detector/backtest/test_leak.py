"""A rank that takes ever more memory in a real job that trains on: a warning, and whose it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from peerwatch_detector.backtest.cases import Case, load_case
from peerwatch_detector.backtest.replay import cycles
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.store import EMPTY

# Healthy until second 660.
JOB = load_case(Path(__file__).parents[1] / "data" / "spinning" / "rank-01")
HEALTHY_SECONDS = 650
LEAK_STARTS = 250


def healthy(frame: JobFrame) -> JobFrame:
    """Return what a metric showed before the fault."""
    return replace(
        frame, times=frame.times[:HEALTHY_SECONDS], values=frame.values[:, :HEALTHY_SECONDS]
    )


def case_with(most: float, of: list[int]) -> Case:
    """Return the healthy job whose nodes ``of`` rise to ``most`` of their memory within 60 s."""
    frames = {name: healthy(frame) for name, frame in JOB.frames.items()}
    like = frames["cpu_usage"]
    values = np.full(like.values.shape, 0.2, like.values.dtype)
    rise = np.clip((np.arange(HEALTHY_SECONDS) - LEAK_STARTS) / 60.0, 0.0, 1.0)
    values[of] += (most - 0.2) * rise
    frames["rank_memory_usage"] = replace(like, values=values)
    return replace(JOB, frames=frames, units=JOB.units | {"rank_memory_usage": "ratio"})


def found(case: Case) -> dict[Finding, Explanation]:
    """Return what the shipped settings find, and why."""
    result: dict[Finding, Explanation] = {}
    for detection in cycles(case, DetectorConfig(), EMPTY):
        result |= detection.explanations
    return result


def test_a_leak_that_costs_no_step_is_a_warning_about_the_rank() -> None:
    ((finding, why),) = found(case_with(0.7, of=[2])).items()

    assert ("node-2", "rank_memory_usage", "warning") == (
        finding.node,
        finding.metric,
        finding.severity,
    )
    # As long as any deviation of a job that trains, from where it is more than others show.
    assert 240 <= finding.raised - LEAK_STARTS <= 290
    assert (why.meaning.family, why.job.activity) == ("memory_leak", "trains")


def test_a_leak_in_all_ranks_is_no_node_s_fault() -> None:
    assert not found(case_with(0.7, of=[0, 1, 2, 3]))


def test_a_rank_that_needs_somewhat_more_than_others_is_no_finding() -> None:
    assert not found(case_with(0.3, of=[0]))
