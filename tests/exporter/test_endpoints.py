"""The expositions: from snapshots only, kept, honest about their age, and nothing twice."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)

from fake_collectors import Blocking, Returning, Rows, StandingProcesses, wait_until, worker_of
from hardware_cases import NOW, FakeClock
from peerwatch_common.metrics.spec import TimedFamily
from peerwatch_exporter.collector import all_metrics
from peerwatch_exporter.pages.endpoints import Endpoints
from peerwatch_exporter.pages.scrapers import LastScrape, Scrapers
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths

CATALOG = all_metrics()


class Node:
    """A runner on two clocks of its own, and its endpoints."""

    def __init__(self, *, history=0, deadline=20.0, more_samples=None, **collectors):
        self.clock, self.monotonic = FakeClock(), FakeClock(1000.0)
        paths = Paths(*[Path("nowhere")] * 3)
        sources = Sources(
            paths,
            clock=self.clock,
            monotonic=self.monotonic,
            own_processes=StandingProcesses(),
        )
        workers = [worker_of(item, name, self.monotonic) for name, item in collectors.items()]
        self.runner = Runner(
            workers, sources, deadline_seconds=deadline, version="1", history_seconds=history
        )
        self.endpoints = Endpoints(self.runner, more_samples=more_samples)

    def tick(self, seconds=1.0):
        """Let time pass, then take a snapshot."""
        self.clock.now += seconds
        self.monotonic.now += seconds
        return self.runner.tick()

    def full(self, **options):
        return lines(self.endpoints.full(**{"openmetrics": False, "timeout": 0, **options}))

    def fast(self, scraper=None):
        return lines(self.endpoints.fast(openmetrics=False, scraper=scraper, timeout=0))


@pytest.fixture
def node():
    made = []

    def make(**options):
        made.append(Node(**options))
        return made[-1]

    yield make
    for item in made:
        item.runner.stop()


def lines(exposition):
    return [line for line in exposition.decode().splitlines() if not line.startswith("#")]


def test_full_exposition_holds_the_newest_snapshot(node):
    load = Returning("host_load1", 0.5)
    there = node(load=load)
    there.tick()
    assert "host_load1 0.5" in there.full()
    load.value = 0.75
    assert "host_load1 0.5" in there.full()
    there.tick()
    assert "host_load1 0.75" in there.full()
    assert "exporter_snapshot_timestamp_seconds 1767300002.0" in there.full()


def test_answering_runs_no_collector(node):
    collector = Returning()
    there = node(cpu=collector)
    there.tick()
    for _ in range(5):
        there.full()
        there.fast()
    assert 1 == collector.runs


def test_exposition_is_rendered_once_per_snapshot_and_format(node):
    there = node(cpu=Returning())
    there.tick()
    first = there.endpoints.full(openmetrics=False, timeout=0)
    openmetrics = there.endpoints.full(openmetrics=True, timeout=0)
    assert first is there.endpoints.full(openmetrics=False, timeout=0)
    assert openmetrics is there.endpoints.full(openmetrics=True, timeout=0)
    assert bytes(openmetrics).endswith(b"# EOF\n")
    there.tick()
    assert bytes(first) != bytes(there.endpoints.full(openmetrics=False, timeout=0))


def test_many_at_the_same_time_get_the_same_exposition(node):
    there = node(cpu=Returning())
    there.tick()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(there.endpoints.full, openmetrics=False, timeout=0) for _ in range(40)]
        assert 1 == len({id(each.result(60)) for each in asked})


def test_before_the_first_snapshot_the_exporter_speaks_for_itself(node):
    there = node(cpu=Returning())
    assert 'exporter_build_info{version="1"} 1' in there.full()
    assert not [line for line in there.full() if line.startswith(("host", "exporter_collector"))]
    assert ["fast_up 1"] == there.fast()
    assert (False, "The first snapshot is not taken yet.") == there.endpoints.readiness()


def test_first_exposition_waits_for_the_first_snapshot(node):
    there = node(cpu=Returning())
    threading.Timer(0.1, there.runner.tick).start()
    assert "host_cpus 2.0" in there.full(timeout=60)


def test_old_snapshot_is_not_sold_as_new(node):
    there = node(cpu=Returning(), tcp=Returning("host_tcp_send_queue_bytes", 5))
    there.tick()
    there.monotonic.now += 10
    assert "host_cpus 2.0" in there.full()
    assert "fast_tcp_send_queue_bytes 5" in there.fast()
    assert (True, "peerwatch-exporter is ready.") == there.endpoints.readiness()
    there.monotonic.now += 0.5
    exposition = there.full()
    assert not [line for line in exposition if line.startswith("host_")]
    assert "exporter_snapshot_timestamp_seconds 1767300001.0" in exposition
    assert f"exporter_series {len(exposition)}" in exposition
    assert ["fast_up 1"] == there.fast()
    ready, text = there.endpoints.readiness()
    assert (False, True) == (ready, "10 s old" in text or "11 s old" in text)
    there.tick()
    assert "host_cpus 2.0" in there.full()


def test_not_ready_only_if_every_collector_is_stuck(node):
    gpu, nvlink = Blocking(), Blocking()
    there = node(deadline=0.05, gpu=gpu, nvlink=nvlink)
    there.tick()
    assert (False, "Every collector is stuck: gpu, nvlink.") == there.endpoints.readiness()
    gpu.let_go.set()
    nvlink.let_go.set()
    with_one = node(deadline=0.05, gpu=(stuck := Blocking()), cpu=Returning())
    # Until the other one has run in time.
    wait_until(lambda: (with_one.tick(), with_one.endpoints.readiness()[0])[1])
    stuck.let_go.set()


def test_fast_exposition_without_history_has_no_timestamps(node):
    there = node(tcp=Returning("host_tcp_send_queue_bytes", 5))
    for _ in range(3):
        there.tick()
    assert ["fast_up 1", "fast_tcp_send_queue_bytes 5"] == there.fast("a") == there.fast("a")


def test_fast_exposition_with_history_gives_each_scraper_every_sample_once(node):
    queue = Rows()
    there = node(history=30, tcp=queue)

    def seconds(*values):
        for value in values:
            queue.rows = {"host_tcp_send_queue_bytes": [((), value)]}
            there.tick()

    def sample(value, second):
        return f"fast_tcp_send_queue_bytes {value} {int(NOW + second) * 1000}"

    seconds(10, 20, 30)
    assert ["fast_up 1", sample(10, 1), sample(20, 2), sample(30, 3)] == there.fast("a")
    assert ["fast_up 1"] == there.fast("a")
    seconds(40)
    assert ["fast_up 1", sample(10, 1), sample(20, 2), sample(30, 3), sample(40, 4)] == there.fast(
        "b"
    )
    assert ["fast_up 1", sample(40, 4)] == there.fast("a")
    assert 5 == len(there.fast(None))


def test_history_goes_back_no_further_than_set(node):
    there = node(history=5, tcp=Returning("host_tcp_send_queue_bytes", 1))
    for _ in range(60):
        there.tick()
    samples = there.fast("a")[1:]
    assert [int(NOW + second) * 1000 for second in range(56, 61)] == [
        int(line.split()[-1]) for line in samples
    ]


def test_samples_of_a_series_stand_together_by_rising_time(node):
    rows = {"gpu_power_watts": [((gpu, "u" + gpu), 100.0) for gpu in "01"]}
    there = node(history=10, gpu=Rows(**rows))
    for _ in range(3):
        there.tick()
    exposition = there.endpoints.fast(openmetrics=True, scraper="a", timeout=0).decode()
    (power,) = [
        item for item in parse_openmetrics(exposition) if item.name == "fast_gpu_power_watts"
    ]
    assert [(gpu, NOW + second) for gpu in "01" for second in (1, 2, 3)] == [
        (sample.labels["gpu"], float(sample.timestamp)) for sample in power.samples
    ]


def test_what_joins_jobs_has_no_timestamps_and_is_always_there(node):
    there = node(history=10, jobs=Rows(host_job_info=[(("a", "slurm"), 1)]))
    there.tick()
    for _ in range(2):
        assert ["fast_up 1", 'fast_job_info{job_id="a"} 1'] == there.fast("a")


def test_clock_set_back_drops_the_past_so_that_times_rise(node):
    there = node(history=30, tcp=Returning("host_tcp_send_queue_bytes", 1))
    for _ in range(3):
        there.tick()
    there.fast("a")
    there.clock.now -= 100
    there.tick()
    there.tick()
    times = [int(line.split()[-1]) for line in there.fast("a")[1:]]
    assert [int(NOW - 96) * 1000, int(NOW - 95) * 1000] == times
    assert times == [int(line.split()[-1]) for line in there.fast("b")[1:]]


def test_samples_from_elsewhere_join_the_exposition_with_history(node):
    asked = []

    def more(since, until):
        asked.append((since, until))
        return [TimedFamily(CATALOG["fast_tcp_send_queue_bytes"], [((), 7, NOW + 0.1)])]

    there = node(history=10, more_samples=more, cpu=Returning())
    there.tick()
    assert f"fast_tcp_send_queue_bytes 7 {int(NOW) * 1000 + 100}" in there.fast("a")
    there.fast("a")
    assert [(NOW + 1 - 10, NOW + 1), (NOW + 1, NOW + 1)] == asked


@given(
    st.lists(st.one_of(st.just("tick"), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=60)
)
def test_no_sample_is_ever_given_twice_and_none_is_left_out(events):
    there = Node(history=60, tcp=Returning("host_tcp_send_queue_bytes", 1))
    given_to = {"a": [], "b": [], "c": []}
    ticks = []
    for event in ["tick", *events]:
        if event == "tick":
            ticks.append(int(there.tick().time) * 1000)
        else:
            given_to[event] += [int(line.split()[-1]) for line in there.fast(event)[1:]]
    there.runner.stop()
    for times in given_to.values():
        assert ticks[: len(times)] == times


def test_scrapers_are_forgotten_after_ten_minutes_and_when_there_are_too_many():
    clock = FakeClock(0)
    scrapers = Scrapers(clock)
    scrapers.record("old", LastScrape(1, NOW))
    clock.now = 600
    assert LastScrape(1, NOW) == scrapers.last("old")
    clock.now = 600.5
    assert scrapers.last("old") is None
    for number in range(64):
        scrapers.record(f"s{number}", LastScrape(number, NOW))
    scrapers.record("s0", LastScrape(99, NOW))
    scrapers.record("one more", LastScrape(100, NOW))
    assert (99, None, 100) == (
        scrapers.last("s0").number,
        scrapers.last("s1"),
        scrapers.last("one more").number,
    )


def test_scraper_names_are_not_kept_at_any_length():
    scrapers = Scrapers(FakeClock(0))
    scrapers.record("x" * 10**6, LastScrape(1, NOW))
    assert [128] == [len(name) for name in scrapers._known]
    assert LastScrape(1, NOW) == scrapers.last("x" * 10**6)


def test_garbled_values_never_cost_the_exposition(node):
    there = node(
        tcp=Rows(
            host_tcp_send_queue_bytes=[((), 10**400)],
            host_load1=[((), math.nan)],
            host_network_transmit_bytes_total=[(("a\0\udc80",), 10**5000)],
        )
    )
    there.tick()
    assert 'host_network_transmit_bytes_total{interface="a\ufffd\ufffd"} +Inf' in there.full()
    assert ["fast_up 1"] == there.fast()
