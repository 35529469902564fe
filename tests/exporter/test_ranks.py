"""Ranks from outside and from inside, and the jobs they belong to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from hardware_cases import NOW, FakeClock, collected, only
from peerwatch_exporter.collectors.jobs import JobsCollector
from peerwatch_exporter.collectors.ranks import RanksCollector
from peerwatch_exporter.errors import DirectoryNotFoundError, NoData, PartialData
from peerwatch_exporter.settings.config import (
    ExporterConfig,
    HeartbeatConfig,
    JobsConfig,
    ScopeConfig,
)
from peerwatch_exporter.sources import Sources, real_sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.process_files import read_file
from peerwatch_exporter.sources.host.processes import ProcessTable
from procfs_tree import BOOT_TIME, ProcTree


@pytest.fixture
def tree(tmp_path):
    return ProcTree(tmp_path / "proc").machine()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sources(tree, clock):
    return Sources(Paths(tree.root, tree.root, tree.root), clock=clock, monotonic=clock)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "heartbeats").mkdir()
    return ExporterConfig(
        heartbeat=HeartbeatConfig(directory=tmp_path / "heartbeats"),
        jobs=JobsConfig(mapping_directory=tmp_path / "jobs"),
    )


@pytest.fixture
def write_heartbeat(config):
    def write(rank, **fields):
        directory = config.heartbeat.directory
        directory.mkdir(exist_ok=True)
        path = directory / f"rank-{rank}.json"
        path.write_text(json.dumps({"rank": rank, "time": NOW - 1, **fields}))
        return path

    return write


@pytest.fixture
def map_job(config):
    def write(name, *job_ids):
        (config.jobs.mapping_directory / name).write_text("".join(f"{j}\n" for j in job_ids))

    return write


def rank_of(rank, world_size=4, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "PEERWATCH_JOB_ID": "job", **more}


def drain(collector):
    """Return (samples, what PartialData said) of one collection."""
    samples = {}
    try:
        for family in collector.collect():
            for sample in family.samples:
                samples[sample.name, *sample.labels.values()] = sample.value
    except PartialData as error:
        return samples, error
    return samples, None


def states(samples):
    return {
        key[1:3]: key[3]
        for key, value in samples.items()
        if key[0] == "rank_process_state" and value == 1
    }


def test_node_without_ranks_has_no_data(config, sources):
    with pytest.raises(NoData):
        list(RanksCollector(config, sources).collect())
    assert {} == only(collected(JobsCollector(config, sources)), "host_job_info")


def test_root_is_the_topmost_process_of_a_rank_and_children_are_its_tree(config, tree, sources):
    tree.process(10, {}, name="torchrun")
    tree.process(11, rank_of(0), parent=10, state="R", threads=8, user=100)
    tree.process(12, rank_of(0), parent=11, threads=2, user=10)
    tree.process(13, {}, parent=12, user=1)
    tree.process(14, rank_of(1), parent=10, state="D", user=7)
    samples = collected(RanksCollector(config, sources))
    assert {("job", "0"): "running", ("job", "1"): "disk_sleep"} == states(samples)
    assert {("job", "0"): 3, ("job", "1"): 1} == only(samples, "rank_processes")
    assert {("job", "0"): 11, ("job", "1"): 1} == only(samples, "rank_threads")
    assert 1.11 == pytest.approx(samples["rank_cpu_seconds_total", "job", "0", "user"])
    assert {("job", "0", "", "4", "11"), ("job", "1", "", "4", "14")} == set(
        only(samples, "rank_info")
    )


def test_worker_whose_parent_died_stays_with_its_rank(config, tree, sources):
    tree.process(11, rank_of(0), state="R", start=100)
    tree.process(12, rank_of(0), parent=1, start=200)
    samples = collected(RanksCollector(config, sources))
    assert {("job", "0"): "running"} == states(samples)
    assert 2 == samples["rank_processes", "job", "0"]


def test_slurm_tasks_are_ranks_unless_torchrun_runs_below_them(config, tree, sources):
    task = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
    batch = {name: value for name, value in task.items() if name != "SLURM_STEP_ID"}
    tree.process(10, batch, name="batch.sh", start=1)
    tree.process(20, task, state="R", start=5)
    tree.process(30, {**task, "SLURM_JOB_ID": "8"}, name="torchrun")
    tree.process(31, {**task, "SLURM_JOB_ID": "8", "RANK": "5", "WORLD_SIZE": "8"}, parent=30)
    samples = collected(RanksCollector(config, sources))
    assert {("7", "0"): "running", ("8", "5"): "sleeping"} == states(samples)


def test_counter_of_a_rank_does_not_fall_when_a_child_ends(config, tree, sources, clock):
    collector = RanksCollector(config, sources)
    tree.process(11, rank_of(0), user=100, read=50)
    tree.process(12, rank_of(0), parent=11, user=900, read=60)
    first = collected(collector)
    tree.end(12)
    clock.now += 1
    second = collected(collector)
    for key in (
        ("rank_cpu_seconds_total", "job", "0", "user"),
        ("rank_read_bytes_total", "job", "0"),
    ):
        assert first[key] == second[key]
    assert 1 == second["rank_processes", "job", "0"]


def counters_of(samples):
    names = ("rank_cpu_seconds_total", "rank_read_bytes_total", "rank_written_bytes_total")
    return {key: pytest.approx(value) for key, value in samples.items() if key[0] in names}


def test_use_of_a_child_counts_once_though_its_parent_takes_it_over(config, tree, sources, clock):
    collector = RanksCollector(config, sources)
    tree.process(11, rank_of(0), user=100, read=50, written=1)
    tree.process(12, rank_of(0), user=900, parent=11, read=60, written=5)
    assert 110 == collected(collector)["rank_read_bytes_total", "job", "0"]
    # The child did some more and ended; its parent, which waited for it, read 3 bytes meanwhile.
    tree.end(12)
    tree.process(11, rank_of(0), user=101, waited=907, read=50 + 67 + 3, written=6)
    clock.now += 5
    samples = collected(collector)
    assert 10.08 == pytest.approx(samples["rank_cpu_seconds_total", "job", "0", "user"])
    assert 120 == samples["rank_read_bytes_total", "job", "0"]
    assert 6 == samples["rank_written_bytes_total", "job", "0"]
    # An exporter that starts now must not show less: that would be a reset, and all of it new.
    assert samples == {**samples, **counters_of(collected(RanksCollector(config, sources)))}


def test_heartbeat_joins_the_process_and_names_its_job(config, tree, sources, write_heartbeat):
    tree.process(11, rank_of(2, PEERWATCH_JOB_ID=""))
    write_heartbeat(2, step=40, batches=90, last_step_time=NOW - 2, job_id="from-inside")
    samples = collected(RanksCollector(config, sources))
    assert {("from-inside", "2"): "sleeping"} == states(samples)
    assert 40 == samples["rank_steps_total", "from-inside", "2"]
    assert 90 == samples["rank_batches_total", "from-inside", "2"]
    assert NOW - 1 == samples["rank_heartbeat_timestamp_seconds", "from-inside", "2"]
    assert NOW - 2 == samples["rank_last_step_timestamp_seconds", "from-inside", "2"]


def test_rank_that_names_no_job_takes_the_only_mapped_one(
    config, sources, write_heartbeat, map_job
):
    write_heartbeat(2, step=40)
    map_job("node", "mapped")
    samples = collected(RanksCollector(config, sources))
    assert 40 == samples["rank_steps_total", "mapped", "2"]


def test_rank_that_names_no_job_takes_none_of_several(config, sources, write_heartbeat, map_job):
    write_heartbeat(2, step=40)
    write_heartbeat(3, step=41, job_id="own")
    map_job("node", "first", "second")
    samples = collected(RanksCollector(config, sources))
    assert 40 == samples["rank_steps_total", "", "2"]
    assert 41 == samples["rank_steps_total", "own", "3"]


def test_heartbeat_of_another_job_is_not_joined(config, tree, sources, write_heartbeat):
    tree.process(11, rank_of(0))
    write_heartbeat(0, job_id="other")
    samples = collected(RanksCollector(config, sources))
    assert {("job", "0"): "sleeping", ("other", "0"): "exited"} == states(samples)


def test_heartbeat_without_time_is_as_old_as_its_file(config, sources, write_heartbeat):
    path = write_heartbeat(0, time=None)
    os.utime(path, (NOW - 5, NOW - 5))
    samples = collected(RanksCollector(config, sources))
    assert NOW - 5 == samples["rank_heartbeat_timestamp_seconds", "", "0"]


def test_rank_whose_process_vanished_has_exited(config, tree, sources, write_heartbeat, clock):
    tree.process(11, rank_of(0))
    write_heartbeat(0, job_id="job", pid=11)
    collector = RanksCollector(config, sources)
    assert {("job", "0"): "sleeping"} == states(collected(collector))
    tree.end(11)
    clock.now += 1
    samples = collected(collector)
    assert {("job", "0"): "exited"} == states(samples)
    assert {} == only(samples, "rank_processes")


def test_heartbeats_pid_finds_a_rank_without_variables(config, tree, sources, write_heartbeat):
    tree.process(11, {}, state="T")
    write_heartbeat(0, pid=11)
    assert {("", "0"): "stopped"} == states(collected(RanksCollector(config, sources)))


def test_younger_process_with_the_heartbeats_pid_is_another(config, tree, sources, write_heartbeat):
    after = int((NOW - BOOT_TIME + 60) * 100)
    tree.process(11, {}, start=after)
    write_heartbeat(0, pid=11)
    assert {("", "0"): "exited"} == states(collected(RanksCollector(config, sources)))


def test_heartbeat_of_long_ago_is_forgotten(config, tree, sources, write_heartbeat, clock):
    write_heartbeat(0, job_id="gone", time=NOW - 1801)
    with pytest.raises(NoData):
        list(RanksCollector(config, sources).collect())
    assert {} == only(collected(JobsCollector(config, sources)), "host_job_info")
    # A process that stands still for hours is still there, with the age of its heartbeat.
    tree.process(11, rank_of(0, PEERWATCH_JOB_ID="gone"), state="T")
    clock.now += 1
    samples = collected(RanksCollector(config, sources))
    assert {("gone", "0"): "stopped"} == states(samples)
    assert NOW - 1801 == samples["rank_heartbeat_timestamp_seconds", "gone", "0"]


@pytest.mark.parametrize(
    "content",
    [
        '{"rank": 1, "st',
        "",
        "[]",
        '{"rank": 2}',
        '{"rank": -1}',
        '{"rank": 1, "step": "many"}',
        '{"rank": 1, "time": 1e999}',
        '{"step": 1}',
        '{"rank": 1}' + " " * 70000,
        '{"rank": 1, "extra": ' + "[" * 30000,
    ],
)
def test_garbled_heartbeat_skips_only_its_rank(config, sources, write_heartbeat, content):
    write_heartbeat(0)
    write_heartbeat(1).write_text(content)
    samples, missing = drain(RanksCollector(config, sources))
    assert {("", "0"): "exited"} == states(samples)
    assert "garbled_heartbeat" == missing.error_class
    assert "rank-1.json" in str(missing)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()],
    ids=["pipe without a writer", "device without end", "directory"],
)
def test_heartbeat_that_is_no_file_skips_only_its_rank(config, sources, write_heartbeat, make):
    write_heartbeat(0)
    path = write_heartbeat(1)
    path.unlink()
    make(path)
    samples, missing = drain(RanksCollector(config, sources))
    assert {("", "0"): "exited"} == states(samples)
    assert "garbled_heartbeat" == missing.error_class
    assert "rank-1.json: is no regular file" in str(missing)


def test_other_files_beside_the_heartbeats_are_ignored(config, sources, write_heartbeat):
    write_heartbeat(0)
    directory = config.heartbeat.directory
    for name in (".rank-1.77.tmp", "rank-01.json", "rank-x.json", "notes.txt"):
        (directory / name).write_text("not a heartbeat")
    samples, missing = drain(RanksCollector(config, sources))
    assert ({("", "0"): "exited"}, None) == (states(samples), missing)


def test_only_processes_of_the_scope_are_ranks_of_the_node(config, tree, sources, write_heartbeat):
    scope = ScopeConfig(kind="processes", environment={"PEERWATCH_NODE": "a"})
    config = config.model_copy(update={"scope": scope})
    tree.process(11, rank_of(0, PEERWATCH_NODE="a"))
    tree.process(12, rank_of(1, PEERWATCH_NODE="b"))
    write_heartbeat(3, pid=12)
    samples = collected(RanksCollector(config, sources))
    assert {("job", "0"): "sleeping", ("", "3"): "exited"} == states(samples)
    assert {("job", "peerwatch"): 1} == only(
        collected(JobsCollector(config, sources)), "host_job_info"
    )


def test_storage_counters_of_another_users_rank_are_missing_and_said_to_be(tree, config, clock):
    def refuse_io(path):
        if path.endswith("/io"):
            raise PermissionError(13, "Permission denied", path)
        return read_file(path)

    sources = Sources(Paths(tree.root, tree.root, tree.root), clock=clock, monotonic=clock)
    vars(sources)["processes"] = ProcessTable(tree.root, monotonic=clock, read=refuse_io)
    tree.process(11, rank_of(0), user=100)
    samples, missing = drain(RanksCollector(config, sources))
    assert 1.0 == samples["rank_cpu_seconds_total", "job", "0", "user"]
    assert {} == only(samples, "rank_read_bytes_total")
    assert isinstance(missing.__cause__, PermissionError)


def test_use_is_read_every_five_seconds_and_when_a_process_comes_or_goes(config, tree, clock):
    reads = []

    def count(path):
        reads.append(path.rpartition("/")[2])
        return read_file(path)

    sources = Sources(Paths(tree.root, tree.root, tree.root), clock=clock, monotonic=clock)
    vars(sources)["processes"] = ProcessTable(tree.root, monotonic=clock, read=count)
    collector = RanksCollector(config, sources)

    def second(number, waited=0):
        """Let a second pass with 0.01 s of CPU time; return what is known of it, and files read."""
        state = "RD"[number % 2]
        tree.process(11, rank_of(0), state=state, user=number, waited=waited, image=1000)
        clock.now += 1
        reads.clear()
        samples = collected(collector)
        # Whether the rank runs is known at once.
        assert {("job", "0"): ("running", "disk_sleep")[number % 2]} == states(samples)
        return samples["rank_cpu_seconds_total", "job", "0", "user"], sorted(reads)

    use = ["io", "schedstat", "stat", "status"]
    assert (0.0, ["environ", *use]) == second(0)
    assert [(0.0, ["stat"])] * 4 == [second(number) for number in range(1, 5)]
    assert [(0.05, use), (0.05, ["stat"])] == [second(5), second(6)]
    tree.process(12, rank_of(0), parent=11, user=900, image=1000)
    assert 9.07 == pytest.approx(second(7)[0])
    tree.end(12)
    assert 9.08 == pytest.approx(second(8, waited=900)[0])


def test_of_what_a_rank_started_others_than_parents_are_looked_at_less_often(config, tree, clock):
    reads = []

    def count(path):
        if path.endswith("/stat"):
            reads.append(int(path.split("/")[-2]))
        return read_file(path)

    sources = Sources(Paths(tree.root, tree.root, tree.root), clock=clock, monotonic=clock)
    vars(sources)["processes"] = ProcessTable(tree.root, monotonic=clock, read=count)
    collector = RanksCollector(config, sources)
    parents = {11: 1, 12: 11, 13: 12, **dict.fromkeys(range(20, 40), 11)}
    used = []
    for number in range(41):
        # Everybody works now and then, the main process always.
        work = number - number % 20
        for pid, parent in parents.items():
            user = number if pid == 11 else work
            tree.process(pid, rank_of(0), parent=parent, user=user, image=1000)
        clock.now += 1
        used.append(collected(collector)["rank_cpu_seconds_total", "job", "0", "user"])

    everybody = len(parents)
    assert used[40] == pytest.approx(0.4 * everybody)
    assert used[20:25] == pytest.approx([0.2 * everybody] * 5)
    for pid in (11, 12):
        assert reads.count(pid) >= 41
    for pid in (13, *range(20, 40)):
        assert reads.count(pid) <= 24, pid


@contextlib.contextmanager
def rank_process(job_id):
    environment = {**os.environ, **rank_of(0, PEERWATCH_JOB_ID=job_id)}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], env=environment, stdin=-1)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_real_process_is_followed_from_start_over_a_stop_to_its_end():
    job_id = f"test-{time.monotonic_ns()}"
    config = ExporterConfig()
    collector = RanksCollector(config, real_sources(config))

    def await_state(wanted):
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                state = states(collected(collector)).get((job_id, "0"))
            except NoData:
                state = None
            if state == wanted:
                return True
            time.sleep(0.11)
        return False

    assert await_state(None)
    with rank_process(job_id) as process:
        assert await_state("sleeping")
        process.send_signal(signal.SIGSTOP)
        assert await_state("stopped")
        process.send_signal(signal.SIGCONT)
        assert await_state("sleeping")
    assert await_state(None)


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_heartbeat_directory_that_is_not_there_is_no_success(config, sources, kind):
    directory = config.heartbeat.directory
    directory.rmdir()
    if kind == "file":
        directory.write_text("")
    with pytest.raises(DirectoryNotFoundError, match=r"heartbeat\.directory: .*heartbeats"):
        list(RanksCollector(config, sources).collect())

    directory.unlink(missing_ok=True)
    directory.mkdir()
    with pytest.raises(NoData):
        list(RanksCollector(config, sources).collect())


def test_ranks_found_by_their_processes_outlive_the_directory(config, sources, tree):
    config.heartbeat.directory.rmdir()
    tree.process(10, rank_of(0))
    samples, said = drain(RanksCollector(config, sources))

    assert any(key[0] == "rank_info" for key in samples)
    assert "heartbeat.directory" in str(said)
