from __future__ import annotations

import logging

import numpy as np
import pytest

from detector.fakes import START, config_for, healthy, metric, node_names
from detector.world import ONSET, World, world


@pytest.mark.parametrize("faulty_for", [400, 1500], ids=["in the history", "before the history"])
def test_a_restart_in_mid_fault_keeps_the_finding(
    faulty_for: int, caplog: pytest.LogCaptureFixture
) -> None:
    here = world()
    here.run(ONSET + faulty_for)
    before = here.findings()
    assert 1 == len(before)
    here.restart()
    caplog.clear()
    caplog.set_level(logging.INFO, "peerwatch_detector")
    here.run(15)
    assert before == here.findings()
    here.run(600)
    assert before == here.findings()
    events = [record.getMessage().split()[0] for record in caplog.records]
    assert "finding_restored" in events
    assert "finding_raised" not in events


@pytest.mark.parametrize("faulty_for", [400, 1500], ids=["in the history", "before the history"])
def test_a_restored_finding_falls_when_the_fault_ends(faulty_for: int) -> None:
    here = world(end=ONSET + faulty_for + 100)
    here.run(ONSET + faulty_for)
    here.restart()
    here.run(180)
    assert 1 == len(here.findings())
    here.run(90)
    assert [] == here.findings()


def test_a_restart_in_mid_deviation_finds_the_fault_in_time() -> None:
    here, steady = world(), world()
    here.run(ONSET + 200)
    here.restart()
    here.run(100)
    steady.run(ONSET + 300)
    assert 1 == len(steady.findings())
    assert steady.findings() == here.findings()


def test_a_finding_that_fell_before_the_restart_does_not_come_back() -> None:
    here = world(end=ONSET + 300)
    here.run(ONSET + 300)
    assert 1 == len(here.findings())
    here.run(200)
    assert [] == here.findings()
    here.restart()
    here.run(60)
    assert [] == here.findings()


def test_of_two_findings_published_about_one_node_the_newer_is_restored() -> None:
    config = config_for(metric("load"), metric("other"))
    for order in (1, -1):
        here = world(config)
        values = healthy(4, 4000, 3)
        here.reader.add_job("job-1", {"other": values}, node_names(4), START)
        here.clock.advance(1000)
        labels = {"job_id": "job-1", "node": "node-01", "severity": "critical"}
        old = {**labels, "metric": "other", "method": "peerwatch"}
        new = {**labels, "metric": "load", "method": "peerwatch"}
        published = [(START + 500.0, old, START + 200.0), (START + 990.0, new, START + 604.0)]
        here.reader.published = published[::order]
        here.run(15)
        assert [("load", START + 604.0)] == [(f[3], f[6]) for f in here.findings()]


def test_findings_of_another_version_or_node_are_not_restored() -> None:
    here = world(faulty=None)
    here.clock.advance(1000)
    good = {"job_id": "job-1", "node": "gone", "metric": "load", "severity": "critical"}
    odd = {"job_id": "job-1", "node": "node-00", "metric": "load", "severity": "page"}
    bare = {"job_id": "job-1", "severity": "critical"}
    here.reader.published = [(START + 990.0, labels, 1.0) for labels in (good, odd, bare)]
    here.run(15)
    assert [] == here.findings()


def test_a_restored_finding_stands_at_any_step() -> None:
    here = world(config_for(step_seconds=0.5, history_seconds=900, prometheus={"recorded": False}))
    here.run(ONSET + 300)
    (before,) = here.findings()
    here.restart()
    here.run(15)
    assert [before] == here.findings()


@pytest.mark.parametrize("silent_for", [300, 1500], ids=["in the history", "before the history"])
def test_a_vanished_node_stays_named_over_a_restart(silent_for: int) -> None:
    here = world(faulty=None)
    here.run(ONSET)
    here.reader.remove_node("job-1", "node-02", START + ONSET)
    here.run(75)
    ((*labels, since),) = here.findings()
    assert ["job-1", "node-02", "", "absent", "absent", "critical"] == labels
    assert START + ONSET == since
    here.run(silent_for)
    assert [(*labels, since)] == here.findings()
    here.restart()
    here.run(15)
    assert [(*labels, since)] == here.findings()
    here.run(300)
    assert [(*labels, since)] == here.findings()


def slowed(nodes: int = 3, seconds: int = 4000, slow_from: int = 1500) -> World:
    """Return a job that makes its steps half as fast from some second on, on all nodes at once."""
    here = world(faulty=None, nodes=nodes, seconds=seconds)
    time = np.arange(seconds, dtype=np.float64)
    counted = np.floor(np.where(time < slow_from, time / 2, slow_from / 2 + (time - slow_from) / 4))
    here.reader.add_job(
        "job-1", {"rank_steps": np.tile(counted, (nodes, 1))}, node_names(nodes), START
    )
    return here


def ratio(here: World) -> float | None:
    (detection,) = here.detector.snapshot.detections
    return None if detection.step_rate is None else round(detection.step_rate.ratio, 1)


def test_a_restart_goes_on_with_the_jobs_usual_step_rate() -> None:
    here = slowed()
    here.run(1500, cycle=150)
    assert ratio(here) == 1.0
    here.run(1050, cycle=150)
    assert ratio(here) == 0.5
    here.restart()
    # Of the fifteen minutes that are read again, none was as usual.
    here.run(15)
    assert ratio(here) == 0.5
    here.run(300)
    assert ratio(here) == 0.5


def test_the_pace_of_other_nodes_is_not_gone_on_with() -> None:
    here = slowed(nodes=5)
    here.run(2550, cycle=150)
    assert ratio(here) == 0.5
    here.reader.leave("job-1", node_names(5)[4], here.clock.now)
    here.run(120)
    assert ratio(here) is None
    here.restart()
    here.run(15)
    assert ratio(here) == 1.0
