"""Ranks that are halted or have ended: for how long, by what, and what is left of their job."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from hardware_cases import NOW, FakeClock, collected, only
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.collectors.ranks import RanksCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig, HeartbeatConfig, JobsConfig
from peerwatch_exporter.sources import Sources, real_sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.jobs.rank_ends import Exit, exit_of_status
from procfs_tree import ProcTree

RANK = {"RANK": "0", "WORLD_SIZE": "4", "PEERWATCH_JOB_ID": "job"}


class Node:
    """A node with the processes of a tree, whose exporter is asked each second."""

    def __init__(self, folder):
        self.clock = FakeClock()
        self.heartbeats = folder / "heartbeats"
        self.heartbeats.mkdir()
        (folder / "jobs").mkdir()
        self.tree = ProcTree(folder / "proc").machine()
        self.config = ExporterConfig(
            heartbeat=HeartbeatConfig(directory=self.heartbeats),
            jobs=JobsConfig(mapping_directory=folder / "jobs"),
        )
        self.restart()

    def restart(self):
        root = self.tree.root
        sources = Sources(Paths(root, root, root), clock=self.clock, monotonic=self.clock)
        self.ranks = RanksCollector(self.config, sources)
        self.jobs = JobsCollector(self.config, sources)

    def write_heartbeat(self, rank=0, **fields):
        document = {"rank": rank, "time": self.clock.now, "job_id": "job", "pid": 11, **fields}
        (self.heartbeats / f"rank-{rank}.json").write_text(json.dumps(document))

    def run(self, seconds):
        for _ in range(seconds):
            self.clock.now += 1
            samples = self.samples()
        return samples

    def samples(self):
        found = {}
        for collector in (self.jobs, self.ranks):
            with contextlib.suppress(NoData, PartialData):
                found |= collected(collector)
        return found

    def job_ids(self):
        return {job_id for job_id, _ in only(self.samples(), "host_job_info")}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_how_long_a_rank_is_stopped_is_told_now_and_in_all(node):
    node.tree.process(11, RANK)
    assert {} == only(node.run(3), "rank_halted_seconds")
    node.tree.process(11, RANK, state="T")
    assert 9 == node.run(10)["rank_halted_seconds", "job", "0"]
    node.tree.process(11, RANK)
    samples = node.run(5)
    assert {} == only(samples, "rank_halted_seconds")
    assert 9 == samples["rank_stopped_seconds_total", "job", "0"]


def test_a_debugger_does_not_stop_a_rank(node):
    node.tree.process(11, RANK, state="t")
    samples = node.run(5)
    assert 1 == samples["rank_process_state", "job", "0", "traced"]
    assert 0 == samples["rank_process_state", "job", "0", "stopped"]
    assert {} == only(samples, "rank_halted_seconds")


def test_an_exception_is_told_by_the_ranks_last_words(node):
    node.tree.process(11, RANK)
    node.write_heartbeat()
    node.run(2)
    node.tree.end(11)
    node.write_heartbeat(ended=node.clock.now, error="torch.OutOfMemoryError")
    samples = node.run(4)
    assert 1 == samples["rank_exit_info", "job", "0", "1", "", "torch.OutOfMemoryError"]
    assert 4 == samples["rank_halted_seconds", "job", "0"]
    # An exporter that comes later knows it as well.
    node.restart()
    samples = node.run(1)
    assert 1 == samples["rank_exit_info", "job", "0", "1", "", "torch.OutOfMemoryError"]
    assert 5 == samples["rank_halted_seconds", "job", "0"]


def test_an_exception_is_told_while_the_process_is_still_there(node):
    """Threads of the program, or NCCL, which waits for its peers, keep it for minutes."""
    node.tree.process(11, RANK)
    node.write_heartbeat()
    assert {} == only(node.run(2), "rank_exit_info")
    node.write_heartbeat(ended=node.clock.now, error="ValueError")
    samples = node.run(3)
    assert 1 == samples["rank_exit_info", "job", "0", "", "", "ValueError"]
    assert 3 == samples["rank_halted_seconds", "job", "0"]
    node.tree.end(11)
    samples = node.run(2)
    assert 1 == samples["rank_exit_info", "job", "0", "1", "", "ValueError"]
    assert 5 == samples["rank_halted_seconds", "job", "0"]
    # The rank's next process has nothing to do with it.
    node.tree.process(12, RANK)
    node.write_heartbeat(pid=12)
    samples = node.run(1)
    assert {} == only(samples, "rank_exit_info") | only(samples, "rank_halted_seconds")


@pytest.mark.parametrize("error", ["a secret: hunter2", 7, "", "x" * 65, ["KeyError"]])
def test_only_the_name_of_a_class_becomes_a_label(node, error):
    node.write_heartbeat(ended=NOW, error=error)
    assert {} == only(node.run(2), "rank_exit_info")


def test_a_job_whose_ranks_have_all_gone_ends_though_a_heartbeat_is_left(node):
    node.tree.process(11, RANK)
    node.write_heartbeat()
    node.run(2)
    assert {"job"} == node.job_ids()
    node.tree.end(11)
    node.run(20)
    assert {"job"} == node.job_ids()
    node.run(15)
    assert set() == node.job_ids()
    # How it ended is still told.
    assert 1 == node.samples()["rank_process_state", "job", "0", "exited"]


def test_a_heartbeat_of_yesterdays_job_does_not_begin_it_again(node):
    node.write_heartbeat(time=NOW - 300)
    node.run(3)
    assert set() == node.job_ids()


def test_a_rank_that_stands_still_keeps_its_job(node):
    node.tree.process(11, {}, state="T")
    node.write_heartbeat(pid=11)
    node.run(600)
    assert {"job"} == node.job_ids()


def test_a_zombie_keeps_its_job_for_half_a_minute(node):
    node.tree.process(11, RANK)
    node.run(2)
    node.tree.process(11, {}, state="Z")
    node.run(20)
    assert {"job"} == node.job_ids()
    node.run(15)
    assert set() == node.job_ids()


def test_a_zombie_tells_the_exception_too(node):
    node.tree.process(11, RANK)
    node.write_heartbeat()
    node.run(2)
    node.tree.process(11, {}, state="Z")
    node.write_heartbeat(ended=node.clock.now, error="KeyError")
    (labels,) = only(node.run(2), "rank_exit_info")
    assert "KeyError" in labels
    node.tree.end(11)
    assert {labels} == set(only(node.run(2), "rank_exit_info"))


def test_a_zombie_with_living_threads_is_alive(node):
    node.tree.process(11, RANK)
    node.run(2)
    node.tree.process(11, {}, state="Z", threads=5)
    samples = node.run(60)
    assert 1 == samples["rank_process_state", "job", "0", "sleeping"]
    assert {"job"} == node.job_ids()


def test_a_rank_that_beats_without_a_visible_process_has_not_exited(node):
    for _ in range(5):
        node.write_heartbeat(pid=4242)
        samples = node.run(1)
    assert 1 == samples["rank_info", "job", "0", "", "", "4242"]
    assert {0} == set(only(samples, "rank_process_state").values())
    # Nor when it hangs: nobody can say whether it still runs.
    samples = node.run(120)
    assert {0} == set(only(samples, "rank_process_state").values())
    assert {"job"} == node.job_ids()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, Exit(code="0")),
        (3 << 8, Exit(code="3")),
        (9, Exit(signal="SIGKILL")),
        (11 | 0x80, Exit(signal="SIGSEGV")),
        (35, Exit(signal="SIG35")),
    ],
)
def test_a_status_is_a_code_or_a_signal(status, expected):
    assert expected == exit_of_status(status)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os.kill(os.getpid(), 9)", ("", "SIGKILL", "")),
        ("raise SystemExit(7)", ("7", "", "")),
        ("pass", ("0", "", "")),
    ],
)
def test_a_real_zombie_tells_its_code_or_signal(code, expected):
    job_id = f"test-{time.monotonic_ns()}"
    config = ExporterConfig()
    collector = RanksCollector(config, real_sources(config))
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "1", "PEERWATCH_JOB_ID": job_id}
    process = subprocess.Popen(
        [sys.executable, "-c", f"input(); {code}"], env=environment, stdin=subprocess.PIPE
    )
    try:
        assert wait_for(lambda: ("rank_threads", job_id, "0") in seen(collector))
        process.stdin.write(b"\n")
        process.stdin.close()
        labels = ("rank_exit_info", job_id, "0", *expected)
        assert wait_for(lambda: labels in seen(collector))
    finally:
        process.kill()
        process.wait()


def seen(collector):
    try:
        return collected(collector)
    except NoData:
        return {}


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.11)
    return False
