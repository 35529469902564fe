"""The replay of many steps at a time against a simulation of single operations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from detector.diagnosis.stragglers.pipeline_job import Job, Key, uneven, write_table
from peerwatch_detector.diagnosis.stragglers.layout import arrange
from peerwatch_detector.diagnosis.stragglers.pipeline import pipeline_schedule
from peerwatch_detector.diagnosis.stragglers.read import read_trace
from peerwatch_detector.diagnosis.stragglers.replay import costs
from peerwatch_detector.diagnosis.stragglers.whatif import WhatIf, analyse
from peerwatch_detector.errors import TraceError

MEAN = ("forward-compute", "backward-compute", "optimizer", "gc")


def measured(job: Job, folder: Path) -> WhatIf:
    layout = arrange(read_trace(job.write(folder / "trace.csv"), None))
    return analyse(layout, pipeline_schedule(layout))


def all_costs(job: Job) -> dict[tuple[int, Key], float]:
    return {(step, key): job.cost(step, key) for step in range(job.steps) for key in job.all_keys()}


def ideal_costs(job: Job) -> dict[tuple[int, Key], float]:
    taken: dict[str, list[float]] = {}
    for (_, key), cost in all_costs(job).items():
        taken.setdefault(key[2], []).append(cost)
    ideal = {
        name: float(np.mean(found) if name in MEAN else np.median(found))
        for name, found in taken.items()
    }
    return {place: ideal[place[1][2]] for place in all_costs(job)}


def seconds(job: Job, ideal: Callable[[Key], bool]) -> float:
    """Simulate with the chosen operations at their ideal."""
    chosen = {place: cost for place, cost in ideal_costs(job).items() if ideal(place[1])}
    changed = Job(
        job.replicas,
        job.stages,
        job.microbatches,
        job.steps,
        job.work,
        {**all_costs(job), **chosen},
    )
    return float(np.mean(changed.step_seconds()))


def transfers(job: Job, seed: int) -> Job:
    """Give transfers random costs."""
    drawn = np.random.default_rng(seed)
    for step in range(job.steps):
        for key in job.all_keys():
            if key[2] not in MEAN:
                job.costs[step, key] = float(drawn.gamma(2.0, 0.05))
    return job


@pytest.mark.parametrize(("replicas", "stages", "microbatches"), [(3, 3, 5), (2, 4, 3), (3, 1, 2)])
def test_every_measure_is_that_of_the_simulation(
    replicas: int, stages: int, microbatches: int, tmp_path: Path
) -> None:
    job = transfers(Job(replicas, stages, microbatches, 2, uneven(7)), 5)
    found = measured(job, tmp_path)
    recorded = float(np.mean(job.step_seconds()))
    ideal = seconds(job, lambda _: True)
    assert pytest.approx(recorded) == found.recorded_seconds
    assert pytest.approx(recorded) == found.replayed_seconds
    assert pytest.approx(ideal) == found.ideal_seconds
    for replica, slowdown in found.by_replica.items():
        assert (
            pytest.approx(seconds(job, lambda key, own=replica: key[0] != own) / ideal) == slowdown
        )
    for stage, slowdown in found.by_stage.items():
        assert pytest.approx(seconds(job, lambda key, own=stage: key[1] != own) / ideal) == slowdown
    computing = seconds(job, lambda key: key[2] != "forward-compute") / ideal
    assert pytest.approx(computing) == found.by_kind["forward-compute"]
    sending = seconds(job, lambda key: key[2] not in ("backward-send", "backward-recv")) / ideal
    assert pytest.approx(sending) == found.by_kind.get("backward-pp-comm", 1.0)
    worst = seconds(job, lambda key: key[:2] in found.worst)
    assert pytest.approx((recorded - worst) / (recorded - ideal)) == found.worst_share
    assert 1 == len(found.worst)


def test_waiting_is_taken_out_of_transfers(tmp_path: Path) -> None:
    job = transfers(Job(2, 3, 4, 2, uneven(3)), 9)
    layout = arrange(read_trace(job.write(tmp_path / "trace.csv"), None))
    own = costs(layout, pipeline_schedule(layout))
    for index, kind in enumerate(layout.kinds):
        for replica in range(2):
            key = (replica, layout.stages[index], kind.name, layout.sequences[index])
            expected = [job.cost(step, key) for step in range(2)]
            assert pytest.approx(expected, abs=1e-9) == own[index][replica].tolist()


def test_operations_that_wait_in_a_circle_are_refused(tmp_path: Path) -> None:
    rows = Job(2, 2, 2, 1).rows()
    # The second stage computes the second microbatch before it sends the first one's gradients, for
    # which the first stage waits before it computes the second.
    starts = {
        (0, "forward-compute", 1): 100.0,
        (0, "backward-compute", 1): 110.0,
        (1, "forward-compute", 1): 50.0,
        (1, "backward-compute", 0): 60.0,
        (1, "backward-compute", 1): 70.0,
    }
    for row in rows:
        row["start_ts"] = starts.get((row["stage"], row["optype"], row["seq_id"]), row["start_ts"])
    layout = arrange(read_trace(write_table(tmp_path / "trace.csv", rows), None))
    with pytest.raises(TraceError, match=r"in a circle, .* of stage"):
        pipeline_schedule(layout)


def test_a_send_without_its_receive_is_refused(tmp_path: Path) -> None:
    rows = [
        row
        for row in Job(2, 2, 2, 1).rows()
        if (row["optype"], row["seq_id"]) != ("forward-recv", 1)
    ]
    layout = arrange(read_trace(write_table(tmp_path / "trace.csv", rows), None))
    with pytest.raises(TraceError, match="Stage 1 has 1 forward-recv for 2 microbatches"):
        pipeline_schedule(layout)
