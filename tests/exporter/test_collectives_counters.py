"""Counters that a communication library writes itself, by the example of the documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectives_cases import collector_of, samples_of
from hardware_cases import collected, only
from peerwatch_exporter.collector import metrics_by_topic
from peerwatch_exporter.sources.collectives.counter_files import CounterFiles

EXAMPLE = Path(__file__).parents[2] / "docs" / "example_counters.py"
# A number that no other job on the test's machine has.
RANK = 978


@pytest.fixture
def heartbeats(tmp_path):
    heartbeat = {"rank": RANK, "pid": os.getpid(), "job_id": "counted", "time": time.time()}
    (tmp_path / f"rank-{RANK}.json").write_text(json.dumps(heartbeat))
    return tmp_path


def write_example(heartbeats):
    environment = {**os.environ, "PEERWATCH_HEARTBEAT_DIR": str(heartbeats), "RANK": str(RANK)}
    subprocess.run([sys.executable, EXAMPLE], env=environment, check=True)
    return heartbeats / f"rank-{RANK}.counters.json"


def test_example_is_published(heartbeats):
    path = write_example(heartbeats)
    collector, ranks = collector_of(heartbeats)
    collected(ranks)
    samples, error = samples_of(collector)
    assert error is None
    rank = "counted", str(RANK)
    group = *rank, "dp0"
    assert {
        ("collective_launched_total", *group, "all_reduce"): 1041,
        ("collective_completed_total", *group, "all_reduce"): 1040,
        ("collective_duration_seconds_total", *group, "all_reduce"): 12.5,
        ("collective_bytes_total", *group, "all_reduce"): 109051904,
        ("collective_bus_bytes_total", *group, "all_reduce"): 109051904 * 2 * 7 / 8,
        ("collective_last_sequence", *group, "launched"): 1041,
        ("collective_last_sequence", *group, "completed"): 1040,
        ("collective_in_flight_info", *group, "all_reduce", "[26214400]", "", ""): 1041,
        ("collective_work_requests_total", *group, "posted"): 5120,
        ("collective_work_requests_total", *group, "completed"): 5119,
        ("collective_group_info", "counted", "dp0", "", "0-7"): 1,
        ("collective_source_up", *rank, "counters"): 1,
    } == {key: value for key, value in samples.items() if "seconds" not in key[0][-8:]}
    (age,) = only(samples, "collective_in_flight_seconds").values()
    assert 7 == pytest.approx(age, abs=0.1)

    # A library that no longer writes is silent; nothing old is said in its name.
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "time": time.time() - 60}))
    samples, _ = samples_of(collector)
    assert {("collective_source_up", *rank, "counters"): 0} == {
        key: value for key, value in samples.items() if key[0] != "collective_group_info"
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 3}, "says it is rank 3"),
        ({"rank": True}, "rank True is no number"),
        ({"time": "now"}, "time 'now' is no number"),
        ({"groups": None}, "groups is no list of at most 32 groups"),
        ({"groups": [{}] * 33}, "groups is no list of at most 32 groups"),
        ({"groups": [7]}, "a group is int, not an object"),
        ({"groups": [{}]}, "a group has no name"),
        ({"groups": [{"name": "g" * 300}]}, "is no text of at most 200 characters"),
        ({"groups": [{"name": "g", "members": "7-3"}]}, "the range '7-3' is empty"),
        ({"groups": [{"name": "g", "launched": 1.5}]}, "launched 1.5 is no whole number"),
        ({"groups": [{"name": "g", "launched": -1}]}, "launched -1 is no number of at least 0"),
        ({"groups": [{"name": "g", "work_requests": {"posted": 1}}]}, "needs posted and completed"),
        ({"groups": [{"name": "g", "in_flight": {}}]}, "in_flight has no since"),
        (
            {"groups": [{"name": "g", "collectives": {"AllReduce": {}, "all_reduce": {}}}]},
            "collectives has 'all_reduce' twice",
        ),
    ],
)
def test_mistake_is_named_with_its_field(heartbeats, change, message):
    path = write_example(heartbeats)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found, problems = CounterFiles(heartbeats, 32).read()
    assert [] == found
    assert ["garbled_counters"] == [problem.error_class for problem in problems]
    assert message in str(problems[0])
    assert str(path) in str(problems[0])


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 100_000, b"\xff", b"x" * (2 << 20)],
    ids=["empty", "half", "nested", "binary", "long"],
)
def test_file_that_is_none_costs_itself(heartbeats, content):
    write_example(heartbeats)
    (heartbeats / "rank-5.counters.json").write_bytes(content)
    (heartbeats / "rank-6.counters.json").mkdir()
    found, problems = CounterFiles(heartbeats, 32).read()
    assert ([RANK], 2) == ([counters.rank for counters in found], len(problems))


def test_labels_are_those_of_the_catalogue(heartbeats):
    write_example(heartbeats)
    collector, ranks = collector_of(heartbeats)
    collected(ranks)
    labels = {
        sample.name: tuple(sample.labels)
        for family in collector.collect()
        for sample in family.samples
    }
    catalogue = {spec.name: spec.labels for spec in metrics_by_topic()["Collectives"]}
    assert labels == {name: catalogue[name] for name in labels}
    # The rest is the recorder's: blocks, which take 15 s.
    assert {name for name in catalogue if "block" in name} == catalogue.keys() - labels.keys()
