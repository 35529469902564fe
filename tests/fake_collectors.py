"""Collectors that return, fail or block as told, workers over them, and workers without any."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hardware_cases import NOW, FakeClock
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import all_metrics
from peerwatch_exporter.schedule.worker import Report, ThreadWorker
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.own_processes import OwnProcesses, ProcessUse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# They publish metrics of real collectors, which are declared when those are imported.
all_metrics()


class Returning:
    """Publishes one value of a metric; counts how often it was asked."""

    def __init__(self, name="host_cpus", value=2.0, labels=()):
        self.name, self.value, self.labels = name, value, labels
        self.runs = 0

    def collect(self):
        self.runs += 1
        result = family(self.name)
        result.add_metric(self.labels, self.value)
        yield result


class Rows:
    """Publishes the rows it holds, {metric: [(labels, value)]}."""

    def __init__(self, **rows):
        self.rows = rows

    def collect(self):
        for name, rows in self.rows.items():
            result = family(name)
            result.rows = list(rows)
            yield result


class Failing:
    """Publishes a value, then raises."""

    def __init__(self, error):
        self.error = error

    def collect(self):
        yield from Returning("host_load1").collect()
        if self.error is not None:
            raise self.error


class Blocking:
    """Does not return before it is let go; counts how often it was started."""

    def __init__(self):
        self.started = 0
        self.running = 0
        self.most_at_once = 0
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def collect(self):
        self.started += 1
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self.entered.set()
        assert self.let_go.wait(120)
        self.running -= 1
        return list(Returning("host_load1").collect())


class StandingProcesses(OwnProcesses):
    """Processes that always use the same."""

    def use(self):
        return [ProcessUse("driver", 2.5, 20_971_520), ProcessUse("main", 1.25, 31_457_280)]


def sources_at(root: Path, clock: FakeClock) -> Sources:
    """Return sources below an empty directory, with both clocks the same."""
    paths = Paths(root, root, root / "kmsg")
    return Sources(paths, clock=clock, monotonic=clock, own_processes=StandingProcesses())


def worker_of(collector, name="c", clock=None, interval_seconds=1.0):
    """Return a thread worker over a ready collector."""
    clock = clock or FakeClock()
    return ThreadWorker(
        name,
        lambda: collector,
        interval_seconds=interval_seconds,
        clock=clock,
        monotonic=clock,
    )


def wait_until(holds: Callable[[], object], seconds: float = 300) -> None:
    """Wait until something holds; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


class Scripted:
    """A worker that is told what to report; notes at which moments it was asked to run."""

    def __init__(self, name, interval_seconds=1.0, clock=None):
        self.name, self.interval_seconds = name, interval_seconds
        self.clock = clock
        self.asked = []
        self.stuck = False
        self.success = True
        self.families = ()
        self.stuck_seconds = {}
        self.failure = None
        self.closed = False

    def request(self):
        self.asked.append(self.clock.now - NOW)

    def report(self, deadline):
        if self.failure is not None:
            raise self.failure
        error = None if self.success else "deadline_exceeded"
        return Report(
            self.name, self.families, self.success, error, 0.0, None, 0, self.stuck_seconds
        )

    def is_stuck(self):
        return self.stuck

    def close(self):
        self.closed = True
