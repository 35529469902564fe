"""The clock of a started runner: it takes snapshots until it is stopped, whatever fails."""

from __future__ import annotations

import threading
import time

from fake_collectors import (
    Returning,
    Scripted,
    wait_until,
    worker_of,
)
from hardware_cases import NOW, FakeClock
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths


def samples(families):
    return {(item.spec.name, *labels): value for item in families for labels, value in item.rows}


def test_started_runner_takes_a_snapshot_at_once_and_one_every_second(tmp_path):
    sources = Sources(Paths(tmp_path, tmp_path, tmp_path))
    collector = Returning()
    worker = worker_of(collector, "cpu", time.monotonic)
    runner = Runner([worker], sources, deadline_seconds=0.8, version="1")
    runner.start()
    try:
        first = runner.snapshot(60)
        wait_until(lambda: runner.snapshot(0).number >= 3)
        third = runner.snapshot(0)
    finally:
        runner.stop()
    assert first is not None
    # Late by what a busy machine costs, but always at the same point of the second or after it.
    assert third.monotonic - first.monotonic >= 1.49
    assert 2.0 == samples(third.families)["host_cpus",]


def test_stopped_runner_closes_its_workers_and_takes_no_more_snapshots(tmp_path):
    clock = FakeClock()
    worker = Scripted("cpu", clock=clock)
    sources = Sources(Paths(tmp_path, tmp_path, tmp_path))
    runner = Runner([worker], sources, deadline_seconds=0.8, version="1")
    runner.start()
    runner.snapshot(60)
    runner.stop()
    number = runner.snapshot(0).number
    assert worker.closed
    assert "clock" not in {thread.name for thread in threading.enumerate()}
    assert number == runner.snapshot(0).number


def test_a_tick_that_fails_does_not_end_the_clock(tmp_path, caplog):
    class Moody(FakeClock):
        def __call__(self):
            self.now += 1
            if self.now < NOW + 3:
                raise OSError("no time")
            return self.now

    paths = Paths(tmp_path, tmp_path, tmp_path)
    clock = Moody(NOW + 3)
    sources = Sources(paths, clock=clock)
    runner = Runner([], sources, deadline_seconds=0.8, version="1")
    runner.start()
    try:
        assert runner.snapshot(60) is not None
        clock.now = NOW - 10
        wait_until(lambda: "snapshot failed" in caplog.text)
        clock.now = NOW + 100
        wait_until(lambda: runner.snapshot(0).time > NOW + 100)
    finally:
        runner.stop()
