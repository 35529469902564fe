"""Workers: deadlines, failures, and calls that never return."""

from __future__ import annotations

import logging
import threading

import pytest

from fake_collectors import Blocking, Failing, Returning, wait_until, worker_of
from hardware_cases import NOW, FakeClock
from peerwatch_exporter.errors import NoData, PartialData, SourceMissing, error_class
from peerwatch_exporter.schedule.worker import ThreadWorker


@pytest.fixture
def blocking():
    """Return a collector that blocks until the test ends, if it was not let go before."""
    result = Blocking()
    yield result
    result.let_go.set()


def run(worker, seconds=20):
    """Run once and return the report; ``seconds`` are real ones while the fake clock stands."""
    worker.request()
    return worker.report(NOW + seconds)


def names(report):
    return [item.name for item in report.families]


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (PermissionError(13, "denied"), "permission_denied"),
        (FileNotFoundError(2, "gone"), "os_error"),
        (KeyError("x"), "key_error"),
        (type("GpuLostError", (Exception,), {})(), "gpu_lost_error"),
        (type("NVMLError", (Exception,), {"error_class": "nvml_timeout"})(), "nvml_timeout"),
        (type("_Private", (Exception,), {})(), "private"),
    ],
)
def test_error_class_is_a_short_word(error, word):
    assert word == error_class(error)


def test_run_that_succeeds_reports_what_it_published():
    report = run(worker_of(Returning(), "cpu"))
    assert ("cpu", ["host_cpus"], True, None) == (
        report.collector,
        names(report),
        report.success,
        report.error,
    )
    assert (0.0, NOW, 0, {}, NOW) == (
        report.duration,
        report.last_success,
        report.timeouts,
        dict(report.stuck_seconds),
        report.started,
    )


def test_worker_that_was_never_asked_has_not_succeeded():
    report = worker_of(Returning()).report(NOW)
    assert (False, "not_run", ()) == (report.success, report.error, report.families)


def test_report_can_be_taken_again_without_a_new_run():
    collector = Returning()
    worker = worker_of(collector)
    assert run(worker) == worker.report(NOW)
    assert 1 == collector.runs


def test_failure_drops_what_was_published_before_it():
    # It may be half of a reading.
    report = run(worker_of(Failing(PermissionError(13, "denied"))))
    assert ((), False, "permission_denied", None) == (
        report.families,
        report.success,
        report.error,
        report.last_success,
    )


def test_collector_that_cannot_be_made_is_tried_again():
    attempts = []

    def make():
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("driver not there yet")
        return Returning()

    worker = ThreadWorker("cpu", make, clock=FakeClock(), monotonic=FakeClock())
    assert "runtime_error" == run(worker).error
    assert run(worker).success
    assert run(worker).success
    assert 2 == len(attempts)


def test_no_data_is_success_with_nothing_published(caplog):
    with caplog.at_level(logging.INFO):
        report = run(worker_of(Failing(NoData("no GPU"))))
    assert ((), True, None) == (report.families, report.success, report.error)
    assert [] == [record.message for record in caplog.records]


def test_a_source_that_was_not_given_is_no_failure_and_is_named(caplog):
    with caplog.at_level(logging.INFO):
        report = run(worker_of(Failing(SourceMissing("no kernel log"))))
    assert ((), True, "source_missing") == (report.families, report.success, report.error)
    (record,) = caplog.records
    assert "INFO" == record.levelname
    assert "no kernel log" in record.getMessage()


def test_partial_data_publishes_what_there_is_and_says_what_is_missing():
    error = PartialData("one file refused")
    error.__cause__ = PermissionError(13, "denied")
    report = run(worker_of(Failing(error)))
    assert (["host_load1"], True, "permission_denied") == (
        names(report),
        report.success,
        report.error,
    )


def test_failure_is_logged_once_per_change_not_per_run(caplog):
    collector = Failing(OSError("one"))
    worker = worker_of(collector, "disk")
    with caplog.at_level(logging.INFO):
        for error in (OSError("one"), OSError("two"), KeyError("x"), None, None, OSError("three")):
            collector.error = error
            run(worker)
    assert [
        "collector failed collector=disk error=os_error detail='one'",
        "collector failed collector=disk error=key_error detail=\"'x'\"",
        "collector recovered collector=disk",
        "collector failed collector=disk error=os_error detail='three'",
    ] == [record.message for record in caplog.records]


def test_run_past_its_deadline_is_left_out_and_not_started_again_until_it_returns(blocking):
    clock = FakeClock()
    worker = worker_of(blocking, clock=clock)
    first = run(worker, 0.05)
    clock.now += 10
    second = run(worker, 0.05)
    assert 1 == blocking.started
    assert worker.is_stuck()
    assert [(False, "deadline_exceeded", ())] * 2 == [
        (report.success, report.error, report.families) for report in (first, second)
    ]
    assert [{"": 0.0}, {"": 10.0}] == [dict(item.stuck_seconds) for item in (first, second)]
    assert [1, 1] == [first.timeouts, second.timeouts]


@pytest.mark.parametrize(("late", "lines"), [(0.8, 0), (6.0, 1)])
def test_late_run_is_logged_only_if_it_is_very_late(blocking, caplog, late, lines):
    clock = FakeClock()
    worker = worker_of(blocking, clock=clock)
    run(worker, 0.05)
    clock.now += late
    for _ in range(3):
        report = run(worker, 0.05)

    assert ("deadline_exceeded", 1) == (report.error, report.timeouts)
    assert lines == sum("deadline_exceeded" in record.message for record in caplog.records)


def test_second_report_of_a_stuck_run_does_not_wait(blocking):
    worker = worker_of(blocking)
    run(worker, 0.05)
    later = threading.Timer(60, blocking.let_go.set)
    later.start()
    # Waiting for a deadline this far away would see the run return.
    worker.report(NOW + 120)
    later.cancel()
    assert not blocking.let_go.is_set()


def test_late_values_are_dropped_and_the_next_run_counts_again(blocking):
    worker = worker_of(blocking)
    run(worker, 0.05)
    blocking.let_go.set()
    wait_until(lambda: not worker.is_stuck())
    late = worker.report(NOW)
    assert ((), "deadline_exceeded", {}) == (late.families, late.error, dict(late.stuck_seconds))
    report = run(worker)
    assert (2, True, ["host_load1"], 1) == (
        blocking.started,
        report.success,
        names(report),
        report.timeouts,
    )


def test_requests_while_a_run_is_under_way_start_no_other(blocking):
    worker = worker_of(blocking)
    for _ in range(5):
        worker.request()
    assert blocking.entered.wait(60)
    blocking.let_go.set()
    assert worker.report(NOW + 20).success
    assert (1, 1) == (blocking.started, blocking.most_at_once)


def test_closed_worker_ends_its_thread_and_runs_no_more():
    collector = Returning()
    worker = worker_of(collector, "closing")
    run(worker)
    worker.close()
    wait_until(lambda: "collector-closing" not in {each.name for each in threading.enumerate()})
    worker.request()
    assert 1 == collector.runs


def test_making_a_worker_does_not_make_its_collector():
    made = []
    ThreadWorker("gpu", lambda: made.append(1), clock=FakeClock(), monotonic=FakeClock())
    assert [] == made
