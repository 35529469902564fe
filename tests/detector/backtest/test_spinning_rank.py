"""A real job in which one rank loops while its peers wait; ``data/spinning/README.md`` says how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from peerwatch_detector.backtest.cases import Case, load_case
from peerwatch_detector.backtest.replay import cycles
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.models.store import EMPTY

CASE = load_case(Path(__file__).parents[1] / "data" / "spinning" / "rank-01")
ONSET = 660.0


def found(case: Case) -> dict[Finding, Explanation]:
    """Return what the shipped settings find, and why."""
    result: dict[Finding, Explanation] = {}
    for detection in cycles(case, DetectorConfig(), EMPTY):
        result |= detection.explanations
    return result


def without(*metrics: str) -> Case:
    units = {name: unit for name, unit in CASE.units.items() if name not in metrics}
    return replace(CASE, frames={name: CASE.frames[name] for name in units}, units=units)


def test_the_rank_that_spins_is_found_while_its_peers_wait_and_blamed_itself() -> None:
    ((finding, why),) = found(CASE).items()
    assert (finding.node, finding.metric) == ("node-2", "rank_cpu_usage")
    # Longer than any pause of a job that goes on, and a cycle.
    assert 110 <= finding.raised - ONSET <= 140
    assert abs(finding.since - ONSET) <= 15
    assert why.meaning.family == "spinning_rank"
    assert why.job.activity == "waits"


def test_without_the_ranks_own_cpu_nobody_is_blamed_for_load_while_the_job_waits() -> None:
    assert not found(without("rank_cpu_usage"))


def test_a_job_that_comes_back_from_such_pauses_is_given_longer() -> None:
    # As before the fault, but for a pause of two minutes that the job came back from: no step was
    # finished, and all other samples are those of health.
    steps = CASE.frames["rank_steps"]
    values = steps.values.copy()
    values[:, 300:420] = values[:, 300:301]
    values[:, 420:] -= values[:, 420:421] - values[:, 300:301]
    case = replace(CASE, frames=CASE.frames | {"rank_steps": replace(steps, values=values)})
    (finding,) = found(case)
    assert finding.node == "node-2"
    assert 170 <= finding.raised - ONSET <= 210


def test_health_before_the_fault_has_no_finding() -> None:
    cut = {
        name: replace(frame, times=frame.times[:655], values=frame.values[:, :655])
        for name, frame in CASE.frames.items()
    }
    assert np.isfinite(cut["rank_steps"].values).any()
    assert not found(replace(CASE, frames=cut))
