"""The runner: deadlines, failures, and scrapes at the same time."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry

from hardware_cases import NOW, FakeClock
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, PartialData
from peerwatch_exporter.runner import Runner, error_class
from peerwatch_exporter.sources import Paths, Sources


class Returning:
    """Publishes one value of a metric."""

    def __init__(self, name="host_cpus", value=2.0, labels=()):
        self.name, self.value, self.labels = name, value, labels

    def collect(self):
        result = family(self.name)
        result.add_metric(self.labels, self.value)
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
        assert self.let_go.wait(20)
        self.running -= 1
        return list(Returning("host_load1").collect())


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a registry over collectors; blocked ones end with the test."""
    blocking = []

    def registry(deadline=20.0, clock=None, **collectors):
        clock = clock or FakeClock()
        blocking.extend(item for item in collectors.values() if isinstance(item, Blocking))
        sources = Sources(
            Paths(tmp_path, tmp_path, tmp_path / "kmsg"), clock=clock, monotonic=clock
        )
        runner = Runner(
            {name: (lambda item=item: item) for name, item in collectors.items()},
            sources,
            deadline_seconds=deadline,
            version="1.2.3",
        )
        result = CollectorRegistry()
        result.register(runner)
        result.runner = runner
        return result

    yield registry
    for item in blocking:
        item.let_go.set()


def samples(registry):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for item in registry.collect()
        for sample in item.samples
    }


def test_page_has_every_family_and_says_how_each_collector_did(make):
    page = samples(make(cpu=Returning(), other=Returning("host_load1", 0.5)))
    assert {
        ("host_cpus",): 2.0,
        ("host_load1",): 0.5,
        ("exporter_build_info", "1.2.3"): 1,
        ("exporter_collector_success", "cpu"): 1,
        ("exporter_collector_success", "other"): 1,
        ("exporter_collector_duration_seconds", "cpu"): 0,
        ("exporter_collector_duration_seconds", "other"): 0,
        ("exporter_collector_last_success_timestamp_seconds", "cpu"): NOW,
        ("exporter_collector_last_success_timestamp_seconds", "other"): NOW,
        ("exporter_collector_timeouts_total", "cpu"): 0,
        ("exporter_collector_timeouts_total", "other"): 0,
        ("exporter_collector_stuck_seconds", "cpu"): 0,
        ("exporter_collector_stuck_seconds", "other"): 0,
        ("exporter_series",): 14,
    } == page


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


def test_failure_takes_down_only_its_own_collector(make):
    page = samples(make(bad=Failing(PermissionError(13, "denied")), cpu=Returning()))
    assert (2.0, 1) == (page["host_cpus",], page["exporter_collector_success", "cpu"])
    assert 0 == page["exporter_collector_success", "bad"]
    assert 1 == page["exporter_collector_error_info", "bad", "permission_denied"]
    # What it yielded before it failed may be half of a reading.
    assert ("host_load1",) not in page
    assert ("exporter_collector_last_success_timestamp_seconds", "bad") not in page


def test_collector_that_cannot_be_made_is_tried_again(make, tmp_path):
    attempts = []

    def make_collector():
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("driver not there yet")
        return Returning()

    clock = FakeClock()
    sources = Sources(Paths(tmp_path, tmp_path, tmp_path), clock=clock, monotonic=clock)
    runner = Runner({"cpu": make_collector}, sources, deadline_seconds=20, version="1")
    registry = CollectorRegistry()
    registry.register(runner)
    assert 1 == samples(registry)["exporter_collector_error_info", "cpu", "runtime_error"]
    assert 1 == samples(registry)["exporter_collector_success", "cpu"]
    samples(registry)
    assert 2 == len(attempts)


def test_no_data_is_success_with_nothing_published(make, caplog):
    with caplog.at_level(logging.INFO):
        page = samples(make(gpu=Failing(NoData("no GPU"))))
    assert 1 == page["exporter_collector_success", "gpu"]
    assert ("host_load1",) not in page
    assert [] == [record.message for record in caplog.records]


def test_partial_data_publishes_what_there_is_and_says_what_is_missing(make):
    error = PartialData("one file refused")
    error.__cause__ = PermissionError(13, "denied")
    page = samples(make(ranks=Failing(error)))
    assert 2.0 == page["host_load1",]
    assert 1 == page["exporter_collector_success", "ranks"]
    assert 1 == page["exporter_collector_error_info", "ranks", "permission_denied"]


def test_failure_is_logged_once_per_change_not_per_scrape(make, caplog):
    collector = Failing(OSError("one"))
    registry = make(disk=collector)
    with caplog.at_level(logging.INFO):
        for error in (OSError("one"), OSError("two"), KeyError("x"), None, None, OSError("three")):
            collector.error = error
            samples(registry)
    assert [
        "collector failed collector=disk error=os_error detail='one'",
        "collector failed collector=disk error=key_error detail=\"'x'\"",
        "collector recovered collector=disk",
        "collector failed collector=disk error=os_error detail='three'",
    ] == [record.message for record in caplog.records]


def test_stuck_collector_is_left_out_and_not_started_again_until_it_returns(make):
    stuck, clock = Blocking(), FakeClock()
    registry = make(deadline=0.05, clock=clock, gpu=stuck, cpu=Returning())
    first = samples(registry)
    clock.now += 10
    second = samples(registry)
    assert 1 == stuck.started
    assert (2.0, 1) == (second["host_cpus",], second["exporter_collector_success", "cpu"])
    assert 0 == first["exporter_collector_success", "gpu"]
    assert 1 == first["exporter_collector_error_info", "gpu", "deadline_exceeded"]
    assert ("host_load1",) not in first
    assert [0, 10] == [page["exporter_collector_stuck_seconds", "gpu"] for page in (first, second)]
    assert [1, 1] == [page["exporter_collector_timeouts_total", "gpu"] for page in (first, second)]
    assert ["gpu"] == registry.runner.stuck()


def test_collector_that_came_back_works_again(make):
    stuck = Blocking()
    registry = make(deadline=0.05, gpu=stuck)
    assert 0 == samples(registry)["exporter_collector_success", "gpu"]
    stuck.let_go.set()
    deadline = time.monotonic() + 10
    while registry.runner.stuck() and time.monotonic() < deadline:
        time.sleep(0.005)
    page = samples(registry)
    assert 2 == stuck.started
    assert (1, 0, 1) == (
        page["exporter_collector_success", "gpu"],
        page["exporter_collector_stuck_seconds", "gpu"],
        page["exporter_collector_timeouts_total", "gpu"],
    )


def test_scrapes_at_the_same_time_share_one_run(make):
    slow = Blocking()
    registry = make(cpu=slow)
    with ThreadPoolExecutor(8) as pool:
        pages = [pool.submit(samples, registry) for _ in range(8)]
        assert slow.entered.wait(10)
        slow.let_go.set()
        results = [page.result(20) for page in pages]
    assert 1 == slow.most_at_once
    assert all(2.0 == page["host_load1",] for page in results)


def test_family_from_two_collectors_stands_once_with_all_its_series(make):
    one = Returning("host_job_info", 1, ("a", "slurm"))
    same = Returning("host_job_info", 9, ("a", "slurm"))
    other = Returning("host_job_info", 1, ("b", "slurm"))
    registry = make(first=one, second=same, third=other)
    families = [item for item in registry.collect() if item.name == "host_job_info"]
    assert [{("a", "slurm"): 1, ("b", "slurm"): 1}] == [
        {tuple(sample.labels.values()): sample.value for sample in item.samples}
        for item in families
    ]
    assert 2 == len(families[0].samples)


def test_registering_does_not_run_a_collector(make):
    blocking = Blocking()
    make(gpu=blocking)
    assert 0 == blocking.started
