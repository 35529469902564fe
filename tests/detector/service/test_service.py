from __future__ import annotations

import gc
import logging
import weakref
from dataclasses import replace

import numpy as np
import pytest

from detector.fakes import START, config_for, healthy, metric, node_names
from detector.world import ONSET, World, world
from peerwatch_detector.errors import ReadError
from peerwatch_detector.service.schedule import Backlog
from peerwatch_detector.service.workers import attempt


def test_a_fault_is_found_seconds_after_the_continuity_threshold() -> None:
    here = world()
    here.run(ONSET + 240)
    assert [] == here.findings()
    here.run(30)
    (finding,) = here.findings()
    assert ("job-1", "node-01", "", "load", "peerwatch", "critical") == finding[:6]
    assert 0 <= finding[6] - (START + ONSET) <= 8


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "joined"])
def test_a_cycle_asks_only_for_what_is_new(recorded: bool) -> None:
    here = world(config_for(prometheus={"recorded": recorded, "lag_seconds": 2}))
    here.run(1200)
    kind = "raw" if recorded else "stepped"
    asked = [
        (q.start - START, q.end - START)
        for q in here.reader.requests
        if q.kind == kind and "load" in q.query
    ]
    assert (15 - 2 - 900, 13) == asked[0]
    assert (13 - 7, 28) == asked[1]
    assert all(end - start == 22 for start, end in asked[1:])
    assert 80 == len(asked)
    assert ["node-01"] == [finding[1] for finding in here.findings()]


def test_every_step_is_evaluated_once_however_long_the_cycles_are() -> None:
    seen = []
    for cycle in (5.0, 15.0, 60.0):
        here = world()
        here.run(ONSET + 300, cycle)
        memory = here.detector.memories["job-1"].detector.method.metrics["load"]
        seen.append((memory.evaluated_until, memory.baseline.learned.tolist(), here.findings()))
    # A step every 5 s, the last 600 s of them; the faulty node's deviation is not learned, so its
    # older steps are still there.
    assert [[120], [120], [120], [120]] == seen[0][1]
    assert START + ONSET + 295 == seen[0][0]
    assert seen[0] == seen[1] == seen[2]


def test_the_first_read_covers_the_history_and_walks_through_it() -> None:
    here = world()
    here.clock.advance(ONSET + 300)
    here.detector.cycle()
    assert ["node-01"] == [finding[1] for finding in here.findings()]


def test_an_outage_leaves_findings_standing_and_is_logged_once_per_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = world()
    here.run(ONSET + 300)
    before = here.findings()
    success = here.detector.snapshot.last_success
    caplog.clear()
    caplog.set_level(logging.INFO, "peerwatch_detector")
    here.reader.failure = "unreachable"
    here.run(150)
    assert before == here.findings()
    assert not here.detector.snapshot.reading.up
    assert success == here.detector.snapshot.last_success
    # Ten discoveries, and as many reads.
    # Ten times the list of jobs, and everything that is read of the job.
    unanswered = 10 * (1 + len(here.config.read_metrics()))
    assert unanswered == here.detector.snapshot.reading.errors["unreachable"]
    here.reader.failure = "http_5xx"
    here.run(60)
    here.reader.failure = None
    here.run(60)
    assert here.detector.snapshot.reading.up
    assert before == here.findings()
    events = [r.getMessage().split(" error=")[0] for r in caplog.records]
    assert [
        "failed what=discovery reason=unreachable",
        "failed what=job-1 reason=unreachable",
        "failed what=discovery reason=http_5xx",
        "failed what=job-1 reason=http_5xx",
        "recovered what=discovery",
        "recovered what=job-1",
    ] == events
    assert here.detector.snapshot.last_success["job-1"] == here.clock.now


@pytest.mark.parametrize("outage", [60, 300, 1500])
def test_a_fault_that_begins_in_an_outage_is_found_after_it(outage: int) -> None:
    here = world()
    here.run(ONSET - 60)
    here.reader.failure = "timeout"
    here.run(outage)
    assert [] == here.findings()
    here.reader.failure = None
    here.run(360)
    (finding,) = here.findings()
    # Of a longer outage than the history the beginning is lost.
    earliest = START + max(ONSET, ONSET - 60 + outage - 900)
    assert earliest <= finding[6] <= earliest + 40


@pytest.mark.parametrize("outage", [0, 60, 300, 1500])
def test_samples_that_are_not_held_for_longer_than_needed_change_nothing(outage: int) -> None:
    kept, lost = world(config_for()), world(config_for(held_samples=0))
    for here in (kept, lost):
        here.run(ONSET + 120)
        here.reader.failure = "timeout"
        here.run(outage)
        here.reader.failure = None
    for _ in range(20):
        kept.run(15)
        lost.run(15)
        assert repr(kept.detector.snapshot.detections) == repr(lost.detector.snapshot.detections)
    assert ["node-01"] == [finding[1] for finding in lost.findings()]
    held = [here.detector.memories["job-1"].reader for here in (kept, lost)]
    assert [900.0, True] == [held[0].kept_seconds("load"), held[1].kept_seconds("load") < 90]


def test_what_is_held_of_a_job_that_went_while_it_was_read_is_given_back_at_once() -> None:
    here = world()
    here.run(60)
    outcome = attempt(here.detector.reading("job-1"))
    held = weakref.ref(here.detector.memories["job-1"].detector)
    here.reader.members.clear()
    gc.collect()
    # What refers to itself would stay until the collector has its turn, and with it all samples.
    gc.disable()
    try:
        here.run(300)
        assert {} == here.detector.memories
        here.detector.detect("job-1", outcome)
        del outcome
        assert held() is None
    finally:
        gc.enable()


def test_nothing_is_remembered_of_a_job_that_went_while_it_was_read() -> None:
    here = world(config_for(metric("load"), metric("power")))
    here.run(30)
    here.reader.failures_by_query = {"job_node:power": ReadError("refused", "no")}
    work = here.detector.reading("job-1")
    here.reader.members.clear()
    here.run(300)
    assert {} == here.detector.memories
    here.detector.detect("job-1", attempt(work))
    assert {} == here.detector.failures.reasons


def test_an_outage_in_mid_deviation_neither_loses_nor_doubles_the_finding(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steady, cut = world(), world()
    caplog.set_level(logging.INFO, "peerwatch_detector")
    steady.run(ONSET + 400)
    caplog.clear()
    cut.run(ONSET + 120)
    cut.reader.failures_by_query = {"job_node:load": ReadError("truncated", "Broke off.")}
    cut.run(200)
    cut.reader.failures_by_query = {}
    cut.run(80)
    assert 1 == len(steady.findings())
    assert steady.findings() == cut.findings()
    assert 1 == sum("finding_raised" in record.getMessage() for record in caplog.records)


def test_a_node_that_leaves_the_job_in_order_is_not_a_finding_and_its_finding_falls() -> None:
    here = world(nodes=5)
    here.run(ONSET + 300)
    assert ["node-01"] == [finding[1] for finding in here.findings()]
    here.reader.leave("job-1", "node-01", here.clock.now)
    here.reader.leave("job-1", "node-03", here.clock.now)
    here.run(60)
    assert [] == here.findings()
    detection = here.detector.snapshot.detections[0]
    assert ("node-00", "node-02", "node-04") == detection.job.nodes
    here.run(120)
    assert [] == here.findings()


def test_an_ended_job_lingers_and_then_everything_about_it_vanishes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = world(faulty=None)
    caplog.set_level(logging.INFO, "peerwatch_detector")
    here.run(300)
    for node in node_names(4):
        here.reader.leave("job-1", node, here.clock.now)
    here.run(60)
    assert [False] == [detection.job.running for detection in here.detector.snapshot.detections]
    here.run(90)
    snapshot = here.detector.snapshot
    assert ((), {}) == (snapshot.detections, snapshot.last_success)
    assert {} == here.detector.memories
    assert "job_ended job_id=job-1" == caplog.records[-1].getMessage()


def test_a_job_that_all_nodes_leave_at_once_names_nobody() -> None:
    here = world(faulty=None)
    here.run(300)
    for node in node_names(4):
        here.reader.remove_node("job-1", node, here.clock.now)
    here.run(105)
    assert 1 == len(here.detector.snapshot.detections)
    assert [] == here.findings()


def test_a_node_that_a_partial_answer_lacks_has_not_vanished() -> None:
    here = world(faulty=None)
    here.run(300)
    gone, here.reader.partial = here.clock.now, True
    here.reader.remove_node("job-1", "node-02", gone)
    here.run(600)
    assert [] == here.findings()
    here.reader.partial = False
    here.run(180)
    assert [("job-1", "node-02", "absent")] == [(*key[:2], key[3]) for key in here.findings()]


def two_jobs() -> World:
    here = world()
    other = healthy(4, 4000, 7)
    other[2, ONSET:] += 0.3
    names = tuple(f"other-{name}" for name in node_names(4))
    here.reader.add_job("job-0", {"load": other}, names, START)
    return here


@pytest.mark.parametrize(
    "error",
    [ReadError("http_5xx", "Out of memory."), ValueError("a bug")],
    ids=["read error", "bug"],
)
def test_a_job_that_fails_does_not_stop_the_other(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    here = two_jobs()
    here.reader.failures_by_query = {'job_id="job-0"': error}
    here.run(ONSET + 300)
    assert ["node-01"] == [finding[1] for finding in here.findings("job-1")]
    assert [] == here.findings("job-0")
    assert ["job-1"] == list(here.detector.snapshot.last_success)
    failures = [r for r in caplog.records if "what=job-0" in r.getMessage()]
    assert 1 == len(failures)
    here.reader.failures_by_query = {}
    here.run(30)
    assert ["other-node-02"] == [finding[1] for finding in here.findings("job-0")]


def test_jobs_are_evaluated_apart() -> None:
    here = two_jobs()
    here.run(ONSET + 300)
    assert ["node-01"] == [finding[1] for finding in here.findings("job-1")]
    assert ["other-node-02"] == [finding[1] for finding in here.findings("job-0")]


def test_a_metric_nobody_exports_is_left_out() -> None:
    here = world(config_for(metric("missing"), metric("load")))
    here.run(ONSET + 300)
    detection = here.detector.snapshot.detections[0]
    assert {"load": 1.0} == detection.coverage
    assert [("node-01", "load", 2)] == [(f.node, f.metric, f.rank) for f in detection.findings]


def test_late_samples_within_the_overlap_are_read() -> None:
    here = world(faulty=None)
    here.run(300)
    whole = here.reader.recorded["job-1", "load"]
    here.reader.recorded["job-1", "load"] = [
        replace(series, times=series.times[series.times < START + 310], values=series.values[:310])
        for series in whole
    ]
    here.run(15)
    here.reader.recorded["job-1", "load"] = whole
    here.run(15)
    reader = here.detector.memories["job-1"].reader
    assert reader is not None
    frame = reader.frame("load", node_names(4), START + 300, START + 320)
    assert frame is not None
    assert np.isfinite(frame.values).all()


def test_the_models_of_the_snapshot_name_every_metric() -> None:
    here = world(config_for(metric("a"), metric("b")))
    assert (("a", "identity", ""), ("b", "identity", "")) == here.detector.snapshot.models


def test_the_stages_of_a_cycle_are_timed() -> None:
    here = world()
    here.run(15)
    assert {"discover", "read", "detect", "publish"} == set(here.detector.snapshot.stages)
    assert all(0 <= seconds < 60 for seconds in here.detector.snapshot.stages.values())


def test_a_refused_query_costs_its_metric_alone(caplog: pytest.LogCaptureFixture) -> None:
    here = world(config_for(metric("odd"), metric("load")))
    here.reader.failures_by_query = {"job_node:odd:ratio": ReadError("refused", "Many-to-many.")}
    here.run(ONSET + 300)

    assert ["node-01"] == [finding[1] for finding in here.findings()]
    assert ["job-1"] == list(here.detector.snapshot.last_success)
    assert 1 == len([r for r in caplog.records if "what=job-1/odd" in r.getMessage()])


def test_a_job_of_which_no_metric_can_be_read_is_not_evaluated() -> None:
    here = world()
    here.reader.failures_by_query = {"job_node:load:ratio": ReadError("refused", "Many-to-many.")}
    here.run(60)

    assert {} == here.detector.snapshot.last_success


def test_the_failure_of_an_ended_job_is_forgotten_whatever_its_name() -> None:
    here = world()
    for job_id in ("discovery", "job 2", "job 2/x"):
        here.reader.add_job(job_id, {"load": healthy(3, 4000)}, ("x", "y", "z"), START)
    refused = ReadError("http_5xx", "Out of memory.")
    here.reader.failures_by_query = {
        f'job_id="{name}"': refused for name in ("discovery", "job 2/x")
    }
    here.run(30)
    assert here.detector.snapshot.discovered is not None

    for node in ("x", "y", "z"):
        here.reader.leave("job 2", node, here.clock.now)
        here.reader.leave("job 2/x", node, here.clock.now)
    here.run(180)

    assert {("job", "discovery")} == here.detector.failures.reasons.keys()


def test_known_jobs_are_evaluated_while_the_jobs_cannot_be_asked_for() -> None:
    here = world()
    here.run(ONSET)
    here.reader.failures_by_query = {"host_job_info": ReadError("refused", "Too many series.")}
    here.run(300)

    assert ["node-01"] == [finding[1] for finding in here.findings()]
    assert here.detector.snapshot.discovered == START + ONSET
    assert here.detector.snapshot.last_success["job-1"] == here.clock.now


def test_a_node_is_not_silent_for_longer_than_the_jobs_could_be_asked_for() -> None:
    here = world(faulty=None)
    here.run(ONSET)
    here.reader.remove_node("job-1", "node-02", here.clock.now)
    here.run(30)
    here.reader.failures_by_query = {"host_job_info": ReadError("refused", "Too many series.")}
    here.run(300)
    assert [] == here.findings()
    here.reader.failures_by_query = {}
    here.run(60)
    assert ["node-02"] == [finding[1] for finding in here.findings()]


def test_a_job_that_ended_while_it_was_read_is_not_evaluated() -> None:
    here = world(faulty=None)
    here.run(300)
    reading = attempt(here.detector.reading("job-1"))
    here.reader.members.clear()
    here.run(180)
    assert {} == here.detector.memories

    assert here.detector.detect("job-1", reading)
    here.detector.publish(Backlog())
    assert () == here.detector.snapshot.detections
