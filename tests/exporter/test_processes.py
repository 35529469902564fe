"""The processes that play a node: who belongs to it, and counters that never fall."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware_cases import FakeClock, collected
from peerwatch_exporter.collectors.cpu import CpuCollector
from peerwatch_exporter.collectors.disk import DiskCollector
from peerwatch_exporter.collectors.memory import MemoryCollector
from peerwatch_exporter.settings.config import ExporterConfig, ScopeConfig
from peerwatch_exporter.sources import Sources, real_sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.environments import EnvironmentIndex
from peerwatch_exporter.sources.host.monotonic_sum import InheritedSum, MonotonicSum
from peerwatch_exporter.sources.host.process_files import read_file
from peerwatch_exporter.sources.host.processes import ProcessTable
from peerwatch_exporter.sources.host.procfs import GarbledFileError
from procfs_tree import ProcTree

MARK = {"PEERWATCH_NODE": "node-1"}
BUSY = "import time\nend = time.time() + {}\nwhile time.time() < end: pass"


def scoped(**more):
    return ExporterConfig(scope=ScopeConfig(kind="processes", environment=MARK, **more))


@pytest.fixture
def tree(tmp_path):
    return ProcTree(tmp_path).machine()


@pytest.fixture
def clock():
    return FakeClock(0.0)


@pytest.fixture
def sources(tree, clock):
    return Sources(Paths(tree.root, tree.root, tree.root), clock=clock, monotonic=clock)


@contextlib.contextmanager
def started(code, environment):
    process = subprocess.Popen([sys.executable, "-S", "-c", code], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_only_marked_processes_count(tree, sources):
    tree.process(10, MARK, user=500, resident_kb=1000, read=7, written=9)
    tree.process(11, {**MARK, "RANK": "0"}, user=100, resident_kb=24, read=1)
    tree.process(12, {"PEERWATCH_NODE": "node-2"}, user=9999, resident_kb=9999, read=9999)
    tree.process(13, {}, user=9999)
    config = scoped(cpus=0.5, memory_bytes=10 * 1024 * 1024)
    cpu = collected(CpuCollector(config, sources))
    assert (6.0, 0.5) == (cpu["host_cpu_seconds_total", "user"], cpu["host_cpus",])
    memory = collected(MemoryCollector(config, sources))
    assert 10 * 1024 * 1024 - 1024 * 1024 == memory["host_memory_available_bytes",]
    disk = collected(DiskCollector(config, sources))
    assert {
        ("host_disk_read_bytes_total", "processes"): 8,
        ("host_disk_written_bytes_total", "processes"): 9,
    } == disk


def test_machines_own_load_is_not_the_nodes(sources):
    names = {key[0] for key in collected(CpuCollector(scoped(), sources))}
    assert {"host_cpu_seconds_total", "host_cpus", "host_boot_time_seconds"} == names


def test_available_memory_is_never_negative(tree, sources):
    tree.process(10, MARK, resident_kb=4000)
    memory = collected(MemoryCollector(scoped(memory_bytes=1000), sources))
    assert 0 == memory["host_memory_available_bytes",]


def test_counter_does_not_fall_when_a_process_ends_or_its_pid_is_used_again(tree, sources, clock):
    collector = CpuCollector(scoped(), sources)
    seen = []
    tree.process(10, MARK, user=500)
    tree.process(11, MARK, user=300)
    seen.append(collected(collector)["host_cpu_seconds_total", "user"])
    tree.end(11)
    tree.process(10, MARK, user=500, waited=300)
    clock.now += 1
    seen.append(collected(collector)["host_cpu_seconds_total", "user"])
    tree.process(11, MARK, user=50, start=7000)
    clock.now += 1
    seen.append(collected(collector)["host_cpu_seconds_total", "user"])
    assert [8.0, 8.0, 8.5] == seen


histories = st.lists(
    st.dictionaries(st.integers(1, 4), st.integers(0, 1000), max_size=4), min_size=1, max_size=8
)


@given(histories)
def test_rising_sum_equals_the_growth_of_every_process(history):
    rising = MonotonicSum()
    last, expected, before = {}, 0, 0
    for present in history:
        # A naive count: each process adds what it grew by; a new one adds all it has.
        expected += sum(max(0, value - last.get(pid, 0)) for pid, value in present.items())
        last = present
        total = rising.update({(pid, 0): {"n": value} for pid, value in present.items()})
        assert expected == total.get("n", 0)
        assert total.get("n", 0) >= before
        before = total.get("n", 0)


growths = st.lists(
    st.tuples(st.lists(st.integers(0, 1000), min_size=5, max_size=5), st.sets(st.integers(1, 4))),
    min_size=1,
    max_size=8,
)


@given(growths)
def test_inherited_sum_counts_what_every_process_did_once(steps):
    inherited = InheritedSum()
    counters, done = dict.fromkeys(range(5), 0), 0
    for generation, (grown, ending) in enumerate(steps, start=1):
        for pid, value in enumerate(grown):
            counters[pid] += value
            done += value
        # Process 0 waits for those that end, and takes over what they counted; others follow them.
        for pid in ending:
            counters[0] += counters[pid]
            counters[pid] = 0
        present = {
            (pid, generation if pid in ending else 0): {"n": value}
            for pid, value in counters.items()
        }
        assert done == inherited.update(present)["n"]


def test_what_a_parent_takes_over_a_moment_late_counts_once():
    inherited = InheritedSum()
    root, child = (1, 0), (2, 0)
    assert {"n": 30} == inherited.update({root: {"n": 10}, child: {"n": 20}})
    assert {"n": 30} == inherited.update({root: {"n": 11}})
    assert {"n": 34} == inherited.update({root: {"n": 34}})


def test_process_that_nobody_waits_for_takes_its_share_along():
    inherited = InheritedSum()
    root, child = (1, 0), (2, 0)
    assert {"n": 30} == inherited.update({root: {"n": 10}, child: {"n": 20}})
    assert {"n": 30} == inherited.update({root: {"n": 11}})
    assert {"n": 30} == inherited.update({root: {"n": 12}})
    assert {"n": 35} == inherited.update({root: {"n": 17}})


def test_traffic_that_is_not_known_just_now_is_neither_lost_nor_counted_again():
    inherited = InheritedSum()
    root, child = (1, 0), (2, 0)
    assert {"read": 30} == inherited.update({root: {"read": 10}, child: {"read": 20}})
    assert {"read": 31} == inherited.update({root: {"read": 11}, child: {}})
    assert {"read": 36} == inherited.update({root: {"read": 11}, child: {"read": 25}})


def test_process_caught_between_fork_and_exec_is_understood_one_scan_later(tree, sources, clock):
    tree.process(10, {"SHELL": "/bin/sh"}, user=500)
    collector = CpuCollector(scoped(), sources)
    assert 0 == collected(collector)["host_cpu_seconds_total", "user"]
    tree.process(10, MARK, user=500)
    clock.now += 1
    assert 5.0 == collected(collector)["host_cpu_seconds_total", "user"]


def test_collectors_that_a_busy_node_holds_up_share_a_seconds_listing(tree, clock):
    tree.process(10, MARK)
    reads = []

    def count(path):
        reads.append(path)
        return read_file(path)

    table = ProcessTable(tree.root, monotonic=clock, read=count)
    first = table.snapshot()
    tree.process(10, MARK, user=500)
    clock.now += 0.4
    assert (first, 1) == (table.snapshot(), len(reads))
    clock.now += 0.6
    assert (5.0, 2) == (table.snapshot()[10].user_seconds, len(reads))


def test_environments_are_read_ever_less_often(tree, clock):
    tree.process(10, MARK)
    reads = []

    def count(path):
        reads.append(path)
        return read_file(path)

    table = ProcessTable(tree.root, monotonic=clock, read=count)
    index = EnvironmentIndex(table, lambda environment: environment, monotonic=clock)
    for _ in range(600):
        index.find()
        clock.now += 1
    environments = [path for path in reads if path.endswith("environ")]
    # At 0, 1, 2, 4, ... 64 s, and once a minute from there on.
    assert 8 + 8 == len(environments)


def test_environment_is_read_again_after_an_exec_and_hardly_ever_else(tree, clock):
    """Where the kernel shows where the environment lies, nothing else has to be guessed by."""
    tree.process(10, {"SHELL": "/bin/sh"}, image=1000)
    reads = []

    def count(path):
        reads.append(path)
        return read_file(path)

    table = ProcessTable(tree.root, monotonic=clock, read=count)
    index = EnvironmentIndex(table, lambda environment: environment or None, monotonic=clock)
    for _ in range(200):
        clock.now += 1
        ((_, environment),) = index.find()
    # A name that the process gives itself is no sign, and its environment may be overwritten.
    tree.process(10, {"overwritten": "yes"}, name="rank 0 of 8", image=1000)
    for _ in range(60):
        clock.now += 1
        assert [environment] == [each for _, each in index.find()]
    assert 1 == sum(path.endswith("environ") for path in reads)
    tree.process(10, MARK, name="rank 0 of 8", image=2000)
    for _ in range(31):
        clock.now += 1
        index.find()
    assert [MARK] == [each for _, each in index.find()]
    assert 2 == sum(path.endswith("environ") for path in reads)


def test_listing_that_meets_a_garbled_process_keeps_the_others(tree, clock):
    for pid in range(20, 30):
        tree.process(pid)
    tree.write("25/stat", "25 (x) nonsense\n")
    table = ProcessTable(tree.root, monotonic=clock)
    with pytest.raises(GarbledFileError):
        table.snapshot()
    tree.process(25)
    clock.now += 1
    assert set(range(20, 30)) == table.snapshot().keys()


def test_children_are_known_by_parent_also_when_it_ends(tree, clock):
    table = ProcessTable(tree.root, monotonic=clock)
    tree.process(10, parent=1)
    tree.process(11, parent=10)
    tree.process(12, parent=10)
    table.snapshot()
    assert {11, 12} == set(table.children(10))
    tree.end(10)
    tree.end(12)
    tree.process(11, parent=1)
    clock.now += 1
    table.snapshot()
    assert ((), (11,)) == (table.children(10), table.children(1))


def refusing(path):
    if path.endswith(("environ", "io")):
        raise PermissionError(13, "Permission denied", path)
    return read_file(path)


def test_no_environment_may_be_read_is_a_failure(tree, clock):
    tree.process(10, MARK)
    table = ProcessTable(tree.root, monotonic=clock, read=refusing)
    index = EnvironmentIndex(table, lambda _: True, monotonic=clock)
    with pytest.raises(PermissionError):
        index.find()


def test_process_of_another_user_is_not_ours_while_others_can_be_read(tree, clock):
    tree.process(10, MARK)
    tree.process(11, MARK)

    def refuse_one(path):
        return refusing(path) if "/11/" in path else read_file(path)

    table = ProcessTable(tree.root, monotonic=clock, read=refuse_one)
    index = EnvironmentIndex(table, lambda _: True, monotonic=clock)
    assert [10] == [process.pid for process, _ in index.find()]


def test_process_name_may_hold_parentheses_and_spaces(tree, clock):
    tree.process(10, name="a) R (b", state="D", user=3)
    (process,) = ProcessTable(tree.root, monotonic=clock).snapshot().values()
    assert ("a) R (b", "disk_sleep", 0.03) == (process.name, process.state, process.user_seconds)


def test_process_that_ends_between_two_reads_is_none(tree, clock):
    table = ProcessTable(tree.root, monotonic=clock)
    tree.process(10, MARK)
    assert 10 in table.snapshot()
    tree.end(10)
    assert [None] * 4 == [
        read(10) for read in (table.environment, table.status, table.io, table.run_delay_seconds)
    ]


def test_one_listing_serves_the_collectors_of_one_scrape(tree, sources, clock):
    first = sources.processes.snapshot()
    tree.process(10)
    assert first is sources.processes.snapshot()
    clock.now += 1
    assert [10] == list(sources.processes.snapshot())


def test_processes_are_listed_again_only_if_some_came_or_went(tree, sources, clock, monkeypatch):
    listed = []
    list_names = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or list_names(path))

    def seen():
        clock.now += 1
        return sources.processes.snapshot().keys()

    tree.process(10)
    assert ({10}, {10}, 1) == (seen(), seen(), len(listed))
    tree.process(11)
    assert ({10, 11}, {10, 11}, 2) == (seen(), seen(), len(listed))
    tree.end(11)
    assert ({10}, {10}, 3) == (seen(), seen(), len(listed))
    # Who may be seen can change by itself.
    clock.now += 10
    assert ({10}, 4) == (seen(), len(listed))


@pytest.mark.parametrize("line", ["", "processes 0\n", "processes many\n"])
def test_where_the_kernel_does_not_count_forks_every_listing_is_made_anew(
    tree, sources, clock, monkeypatch, line
):
    stat = (tree.root / "stat").read_text()
    tree.write("stat", stat.replace("processes 54321\n", line))
    listed = []
    list_names = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or list_names(path))
    for _ in range(3):
        clock.now += 1
        sources.processes.snapshot()
    assert 3 == len(listed)


def test_process_that_takes_the_place_of_another_is_seen_at_once():
    """The number of processes is the same as before: by the kernel's own count of forks."""
    clock = FakeClock(0.0)
    root = Path("/proc")
    sources = Sources(Paths(root, root, root), clock=clock, monotonic=clock)

    def seen():
        clock.now += 1
        return sources.processes.snapshot().keys()

    code = "import time; time.sleep(600)"
    with started(code, {}) as first:
        assert first.pid in seen()
    with started(code, {}) as second:
        assert {second.pid} == {first.pid, second.pid} & seen()


def test_real_process_counts_while_it_runs_and_after_it_ended():
    mark = {"PEERWATCH_NODE": f"test-{time.monotonic_ns()}"}
    config = ExporterConfig(scope=ScopeConfig(kind="processes", environment=mark))
    sources = real_sources(config)
    cpu = CpuCollector(config, sources)
    memory = MemoryCollector(config, sources)

    def used():
        time.sleep(0.11)  # past the age at which a listing is used again
        exposition = collected(cpu)
        return (
            exposition["host_cpu_seconds_total", "user"]
            + exposition["host_cpu_seconds_total", "system"]
        )

    def available():
        return collected(memory)["host_memory_available_bytes",]

    assert 0 == used()
    idle = available()
    with started(BUSY.format(120), mark):
        deadline = time.monotonic() + 300
        while (busy := used()) < 0.2 and time.monotonic() < deadline:
            pass
        assert 0.2 <= busy < 120
        assert available() < idle
    assert busy <= used()
    assert idle == available()
