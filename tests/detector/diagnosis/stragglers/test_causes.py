"""Machines, stages and uneven sequences are told apart, and only machines name a node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from detector.diagnosis.stragglers.pipeline_job import Job, uneven
from peerwatch_detector.diagnosis.stragglers.causes import Conclusion, conclude
from peerwatch_detector.diagnosis.stragglers.layout import arrange
from peerwatch_detector.diagnosis.stragglers.pipeline import pipeline_schedule
from peerwatch_detector.diagnosis.stragglers.read import read_trace
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf, analyse


def evaluated(job: Job, folder: Path) -> tuple[WhatIf, Conclusion]:
    layout = arrange(read_trace(job.write(folder / "trace.csv"), None))
    measures = analyse(layout, pipeline_schedule(layout))
    return measures, conclude(layout, measures)


def names(conclusion: Conclusion) -> list[str]:
    return [cause.name for cause in conclusion.causes]


def test_s5_a_stage_that_is_slow_in_every_replica_names_no_node(tmp_path: Path) -> None:
    job = Job(4, 4, 12, work=lambda _step, _dp, stage, _mb: 1.25 if stage == 3 else 1.0)
    measures, conclusion = evaluated(job, tmp_path)
    assert ["stage"] == names(conclusion)
    assert () == conclusion.workers
    assert measures.worst_share < 0.1
    assert measures.last_stage_share > 0.9


def test_another_stage_than_the_last_is_told_as_well(tmp_path: Path) -> None:
    job = Job(3, 4, 12, work=lambda _step, _dp, stage, _mb: 1.6 if stage == 0 else 1.0)
    measures, conclusion = evaluated(job, tmp_path)
    assert ["stage"] == names(conclusion)
    assert conclusion.causes[0].text.startswith("Stage 0 ")
    assert measures.last_stage_share < 0.5


def test_s6_a_single_slow_worker_is_named(tmp_path: Path) -> None:
    job = Job(4, 4, work=lambda _step, dp, stage, _mb: 1.5 if (dp, stage) == (1, 2) else 1.0)
    measures, conclusion = evaluated(job, tmp_path)
    assert ["machine"] == names(conclusion)
    (worker,) = conclusion.workers
    assert (job.rank(1, 2), 1, 2) == (worker.rank, worker.replica, worker.stage)
    assert pytest.approx(1.5) == worker.ratio
    assert pytest.approx(1.0, abs=0.1) == measures.worst_share
    assert ((1, 2),) == measures.worst


def test_several_slow_workers_are_named_though_few_percent_explain_little(tmp_path: Path) -> None:
    slow = {(0, 1), (2, 3)}
    job = Job(5, 4, work=lambda _step, dp, stage, _mb: 1.5 if (dp, stage) in slow else 1.0)
    measures, conclusion = evaluated(job, tmp_path)
    assert measures.worst_share < 0.5
    assert slow == {(worker.replica, worker.stage) for worker in conclusion.workers}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("replicas", [2, 5])
def test_uneven_sequences_name_no_node(seed: int, replicas: int, tmp_path: Path) -> None:
    measures, conclusion = evaluated(Job(replicas, 2, 4, 12, uneven(seed)), tmp_path)
    assert "sequence_length" == names(conclusion)[0]
    assert () == conclusion.workers
    assert measures.correlation > 0.99


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_worker_is_named_among_uneven_sequences(seed: int, tmp_path: Path) -> None:
    lengths = uneven(seed, spread=0.1)
    drawn = np.random.default_rng(seed)
    place = (int(drawn.integers(4)), int(drawn.integers(3)))
    job = Job(
        4,
        3,
        5,
        4,
        lambda step, dp, stage, mb: (
            lengths(step, dp, stage, mb) * (2 if (dp, stage) == place else 1)
        ),
    )
    _, conclusion = evaluated(job, tmp_path)
    assert [place] == [(worker.replica, worker.stage) for worker in conclusion.workers]


def test_even_work_has_no_straggler(tmp_path: Path) -> None:
    measures, conclusion = evaluated(Job(3, 3), tmp_path)
    assert ["no_straggler"] == names(conclusion)
    assert pytest.approx(1.0) == measures.slowdown


def test_with_one_replica_a_stage_is_not_told_from_its_machine(tmp_path: Path) -> None:
    job = Job(1, 4, work=lambda _step, _dp, stage, _mb: 1.5 if stage == 2 else 1.0)
    _, conclusion = evaluated(job, tmp_path)
    assert ["undecided"] == names(conclusion)
    assert "check that machine" in conclusion.causes[0].text
    assert () == conclusion.workers


def test_slow_transfers_name_no_node(tmp_path: Path) -> None:
    job = Job(3, 2, 4, 6)
    drawn = np.random.default_rng(2)
    for step in range(job.steps):
        for key in job.all_keys():
            if key[2] == "grads-reduce-scatter":
                # Every third step waits for the network.
                job.costs[step, key] = 12.0 if step % 3 == 0 else float(drawn.uniform(0.1, 0.2))
    _, conclusion = evaluated(job, tmp_path)
    assert ["unexplained"] == names(conclusion)
    assert "grads-reduce-scatter" in conclusion.causes[0].text
    assert () == conclusion.workers


def test_a_worker_too_rarely_seen_is_neither_named_nor_taken_for_a_stage(tmp_path: Path) -> None:
    slow = (1, 1)
    job = Job(3, 2, 6, 2, lambda _step, dp, stage, _mb: 1.5 if (dp, stage) == slow else 1.0)
    _, conclusion = evaluated(job, tmp_path)
    assert ["undecided"] == names(conclusion)
    assert f"Rank {job.rank(1, 1)} explains" in conclusion.causes[0].text
    assert () == conclusion.workers
