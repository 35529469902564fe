"""A simulated node's past is what its expositions would have shown, and goes on where it ends."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from fake_nvml import install
from peerwatch_demo.fleet import host as host_module
from peerwatch_demo.fleet import node as fleet_node
from peerwatch_demo.fleet.host import Host
from peerwatch_demo.fleet.node import FleetNode
from peerwatch_demo.fleet.past import Past, recorded_names
from peerwatch_demo.fleet.plan import PlannedNode, make_plan
from peerwatch_demo.simulated_node.nvml_library import FakeNvml
from peerwatch_exporter.collector import all_metrics
from peerwatch_exporter.snapshot import FastSnapshot, Snapshot

CATALOG = all_metrics()

ROOT = Path(__file__).resolve().parents[3]
# What an alert remembers of the nodes of jobs that are gone: no job is, in the past that is made.
REMEMBERED = "job_node:last_seen:seconds"
# What is made of alerts, of which there are none before the fleet is watched.
OF_ALERTS = {"job_node:degraded_device:info", "job_node:newly_degraded_device:info"}
# What ranks tell of themselves is in the present only: the past has no rank processes.
OF_RANKS = {
    "job_node:rank_steps:total",
    "job_node:collectives:total",
    "job_node:rank_cpu_usage:ratio",
    "job_node:rank_memory_usage:ratio",
}
PLAN = make_plan(8, "nic_down", "1")
FAULTY = PLAN.faults[0].node
HEALTHY = next(node for node in PLAN.nodes if node.name != FAULTY)
STEP = 15.0
START = 1_700_000_000.0
SERIES = re.compile(r"^(\w[\w:]*)\{(.*)\} (\S+) (\d+\.\d{3})$")
LABEL = re.compile(r'(\w+)="([^"]*)"')

Key = tuple[str, tuple[tuple[str, str], ...]]
Samples = dict[Key, dict[float, float]]
Samples = dict[Key, float]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return a host of two nodes with a minute of past; pynvml is as before afterwards."""
    # None of its collectors hangs: one that a busy machine makes late is waited for.
    monkeypatch.setattr(fleet_node, "_DEADLINE_SECONDS", 60.0)
    with install(FakeNvml({"driver_version": "1", "gpus": []})):
        start = time.time() // 5 * 5 - 60
        yield Host(PLAN, [FAULTY, HEALTHY.name], tmp_path, start)


def parsed(text: str) -> Samples:
    """Return the values by series and time; a line of another shape fails."""
    found: Samples = {}
    for line in text.splitlines():
        match = SERIES.match(line)
        assert match, line
        name, labels, value, stamp = match.groups()
        key = (name, tuple(sorted(LABEL.findall(labels))))
        times = found.setdefault(key, {})
        assert float(stamp) > max(times, default=0.0), line
        times[float(stamp)] = float(value)
    return found


def exposition_of(host: Host, name: str, at: float | None = None) -> Samples:
    """Return the values of a node's exposition at a time, with the labels that a scrape adds."""
    planned = next(node for node in PLAN.nodes if node.name == name)
    values = {}
    for line in host.exposition(name, at or time.time()).decode().splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            metric, _, labels = series.partition("{")
            pairs = {**planned.labels, **dict(LABEL.findall(labels))}
            values[metric, tuple(sorted(pairs.items()))] = float(value)
    return values


def test_the_past_has_every_series_of_the_exposition_and_its_counters_go_on(host: Host) -> None:
    past = parsed("".join(host.past(STEP)))
    exposition = exposition_of(host, HEALTHY.name)

    own = {key for key in exposition if not key[0].startswith("exporter_")}
    assert 3000 < len(own)
    assert set() == own - past.keys()
    counters = [key for key in own if CATALOG[key[0]].kind == "counter"]
    assert [] == [key for key in counters if exposition[key] < max(past[key].values())]


def test_a_second_call_goes_on_where_the_first_ended(host: Host) -> None:
    first = parsed("".join(host.past(STEP)))
    key = next(key for key in first if key[0] == "up")

    again = parsed("".join(host.past(0.1)))

    assert {1.0} == set(first[key].values())
    # The past goes on while it is told.
    assert 5 <= len(first[key])
    assert max(first[key]) < min(again[key])


@dataclass
class SlowNode:
    """A node without series, of which a visit takes its time."""

    seconds: float
    planned: PlannedNode = HEALTHY
    now: float = START
    visits: list[float] = field(default_factory=list)

    def visit(self, at: float, slow_seconds: float) -> Snapshot:
        self.visits.append(at)
        self.now += self.seconds
        return Snapshot(len(self.visits), at, at, (), (), (FastSnapshot(at, ()),))


def past_of(node: SlowNode, step: float) -> Samples:
    node.now += 1
    past = Past([cast("FleetNode", node)], START)
    return parsed("".join(past.until(lambda: node.now, step)))


def test_a_machine_too_slow_for_the_step_reaches_the_present_in_longer_ones() -> None:
    node = SlowNode(seconds=0.5)

    ((_, samples),) = past_of(node, 0.25).items()

    # The present was a second ahead, and went on by half a second with each visit.
    assert [START, START + 1, START + 2] == node.visits == list(samples)


def test_a_machine_that_is_fast_enough_keeps_the_step() -> None:
    node = SlowNode(seconds=0.125)

    past_of(node, 0.25)

    assert [START + 0.25 * number for number in range(8)] == node.visits[:8]
    assert node.now - 0.25 < node.visits[-1] <= node.now


def test_every_recorded_series_of_the_rules_is_in_the_past(host: Host) -> None:
    rules = [
        yaml.safe_load((ROOT / "rules" / name).read_text())
        for name in ("recording.rules.yaml", "job.rules.yaml")
    ]
    wanted = {
        rule["record"]
        for file in rules
        for group in file["groups"]
        for rule in group["rules"]
        if rule.get("record", "").startswith(("job_node:", "job_gpu:"))
    } - {REMEMBERED, *OF_ALERTS, *OF_RANKS}

    past = parsed("".join(host.past(STEP)))

    assert wanted == set(recorded_names().values())
    for name in wanted:
        labels = [dict(labels) for metric, labels in past if metric == name]
        assert {
            (node.job_id, node.name) for node in PLAN.nodes if node.name in (FAULTY, HEALTHY.name)
        } == {(series_labels["job_id"], series_labels["node"]) for series_labels in labels}
        assert (16 if name.startswith("job_gpu:") else 2) == len(labels)


def test_a_recorded_rate_is_the_rise_of_its_counters_over_a_step(host: Host) -> None:
    past = parsed("".join(host.past(STEP)))

    def of_node(metric: str) -> list[dict[float, float]]:
        pair = ("node", HEALTHY.name)
        return [
            times for (name, labels), times in past.items() if name == metric and pair in labels
        ]

    (rate,) = of_node("job_node:rdma_throughput:rate")
    counters = of_node("nic_transmit_bytes_total") + of_node("nic_receive_bytes_total")
    *_, before, last = sorted(rate)
    rise = sum(times[last] - times[before] for times in counters)

    assert pytest.approx(rise / (last - before), rel=0.01) == rate[last]


def test_a_question_that_waited_is_answered_for_the_time_at_which_it_came(host: Host) -> None:
    # Prometheus takes what comes as of the time of its question.
    asked = time.time()
    at_once = received(exposition_of(host, HEALTHY.name, asked))
    while time.time() < asked + 1:
        time.sleep(0.1)

    host.begin_fault(asked + 3600, asked)
    late = received(exposition_of(host, HEALTHY.name, asked))
    later = received(exposition_of(host, HEALTHY.name))

    assert at_once == late
    assert 8 == len(later)
    assert all(later[key] > late[key] for key in late)


def test_time_never_goes_back(host: Host) -> None:
    asked = time.time()
    first = received(exposition_of(host, HEALTHY.name, asked))

    assert first == received(exposition_of(host, HEALTHY.name, asked - 10))


def received(exposition: Samples) -> Samples:
    return {key: value for key, value in exposition.items() if key[0] == "nic_receive_bytes_total"}


def test_the_fault_begins_when_it_is_told_to_and_spares_the_counters(host: Host) -> None:
    before = exposition_of(host, FAULTY)
    host.begin_fault(time.time() + 0.5, time.time())
    deadline = time.monotonic() + 300
    while ports(after := exposition_of(host, FAULTY)) == [4.0] * 8:
        assert time.monotonic() < deadline
    peer = exposition_of(host, HEALTHY.name)

    assert [4.0] * 8 == ports(before) == ports(peer)
    assert 1 == ports(after).count(1.0)
    received = [key for key in before if key[0] == "nic_receive_bytes_total"]
    assert 8 == len(received)
    assert [] == [key for key in received if after[key] < before[key]]


def test_nodes_answer_while_others_are_made_anew_for_the_fault(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = []

    def turn(seconds: float) -> None:
        with ThreadPoolExecutor() as pool:
            exposition = pool.submit(host.exposition, HEALTHY.name, time.time())
            answered.append(exposition.result(timeout=300))

    monkeypatch.setattr(host_module, "time", SimpleNamespace(sleep=turn, time=time.time))
    host.begin_fault(time.time() + 0.5, time.time())

    # One job holds all of a small fleet's nodes, two of which live here.
    assert 2 == len(answered)


def test_a_node_that_is_asked_after_the_onset_knows_of_its_fault(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making all nodes anew takes a busy machine longer than the onset is away."""
    onset = time.time() + 0.5
    expositions = []

    def turn(seconds: float) -> None:
        # One node of two is made anew, and some time has passed.
        expositions.append(
            {name: exposition_of(host, name, onset + 60) for name in (FAULTY, HEALTHY.name)}
        )

    monkeypatch.setattr(host_module, "time", SimpleNamespace(sleep=turn, time=time.time))
    host.begin_fault(onset, time.time())
    at_first, at_last = expositions

    assert 1 == ports(at_first[FAULTY]).count(1.0)
    for name, exposition in at_first.items():
        assert 8 == len(received(exposition))
        assert received(exposition) == received(at_last[name])


def ports(exposition: Samples) -> list[float]:
    return [value for (name, _), value in exposition.items() if name == "nic_port_state"]


def test_a_node_of_another_process_is_no_node_of_this_one(host: Host) -> None:
    with pytest.raises(KeyError):
        host.exposition("gpu-999", time.time())


def test_nodes_that_are_made_anew_leave_no_file_open(host: Host) -> None:
    for name in (FAULTY, HEALTHY.name):
        host.exposition(name, time.time())
    open_before = sum(1 for _ in Path("/proc/self/fd").iterdir())

    host.begin_fault(time.time() + 3600, time.time())
    for name in (FAULTY, HEALTHY.name):
        host.exposition(name, time.time())

    # A node keeps some 350.
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) < open_before + 100
