"""Where logs are found: descriptors of processes, pods, torchrun's directories, patterns."""

from __future__ import annotations

import os
import tempfile

import pytest

from log_cases import OpenGuard, rank_target
from peerwatch_exporter.settings.logs import LogsConfig
from peerwatch_exporter.sources.logs.found import Claim, MarkedGuard, Unread, read_mark
from peerwatch_exporter.sources.logs.processes import _run_directory
from peerwatch_exporter.sources.logs.providers.paths import ConfiguredPaths
from peerwatch_exporter.sources.logs.providers.pods import PodLogs
from peerwatch_exporter.sources.logs.providers.processes import ProcessOutputs
from peerwatch_exporter.sources.logs.providers.torchrun import TorchrunLogs
from peerwatch_exporter.sources.logs.targets import HolderTarget, Targets

UID = "0c4e2b9a-58f1-4d5b-9a43-6f0a1c2d3e4f"


def found(provider, *ranks, holders=(), guard=None):
    """Return what a provider finds: files by path with their rank, and reasons."""
    targets = Targets(tuple(ranks), tuple(holders))
    everything = list(provider.find(targets, guard or OpenGuard()))
    files = {each.path: each.rank for each in everything if isinstance(each, Claim)}
    return files, [each.reason for each in everything if isinstance(each, Unread)]


def streams(proc, pid, *targets):
    """Write the descriptors 1 and 2 of a process."""
    for name in ("fd", "fdinfo"):
        (proc / str(pid) / name).mkdir(parents=True)
    for stream, target in enumerate(targets, start=1):
        (proc / str(pid) / "fd" / str(stream)).symlink_to(target)
        (proc / str(pid) / "fdinfo" / str(stream)).write_text("pos:\t0\nmnt_id:\t29\nino:\t5\n")


def test_outputs_of_ranks_and_launchers_are_found(tmp_path):
    proc = tmp_path / "proc"
    for name in ("rank-3.log", "slurm-17.out"):
        (tmp_path / name).write_bytes(b"")
    streams(proc, 10, tmp_path / "rank-3.log", "pipe:[123]")
    streams(proc, 11, "socket:[5]", "/dev/pts/0")
    streams(proc, 12, tmp_path / "slurm-17.out", tmp_path / "gone")
    files, reasons = found(
        ProcessOutputs(proc),
        rank_target(3, pid=10),
        rank_target(4, pid=11),
        rank_target(5, pid=99),
        holders=[HolderTarget("job", 12, 0.0)],
    )
    assert {f"{proc}/10/fd/1": 3, f"{proc}/12/fd/1": None} == files
    assert ["pipe", "socket", "terminal"] == reasons


def test_a_named_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    streams(tmp_path, 10, tmp_path / "pipe", "/dev/null")
    assert ({}, ["pipe", "terminal"]) == found(ProcessOutputs(tmp_path), rank_target(pid=10))


def test_a_file_in_shared_memory_is_no_device(tmp_path):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as log:
        streams(tmp_path, 10, log.name, "/dev/null")
        files, reasons = found(ProcessOutputs(tmp_path), rank_target(pid=10))
    assert ([f"{tmp_path}/10/fd/1"], ["terminal"]) == (list(files), reasons)


def test_a_mount_that_hung_is_left_alone(tmp_path):
    (tmp_path / "log").write_bytes(b"")
    streams(tmp_path, 10, tmp_path / "log")
    guard = OpenGuard()
    guard.hung.add("mount 29")
    assert ({}, ["hung"]) == found(ProcessOutputs(tmp_path), rank_target(pid=10), guard=guard)


def test_the_newest_log_of_each_container_of_a_pod_is_found(tmp_path):
    pod = tmp_path / f"team_train-worker-0_{UID}"
    for path in (
        "pytorch/0.log",
        "pytorch/1.log",
        "sidecar/0.log",
        "sidecar/0.log.20240101-120000",
    ):
        (pod / path).parent.mkdir(parents=True, exist_ok=True)
        (pod / path).write_bytes(b"")
    (tmp_path / "team_other_ffffffff-58f1-4d5b-9a43-6f0a1c2d3e4f").mkdir()
    files, reasons = found(PodLogs(tmp_path), rank_target(7, pod_uid=UID))
    assert {f"{pod}/pytorch/1.log": 7, f"{pod}/sidecar/0.log": 7} == files
    assert [] == reasons
    assert ({}, []) == found(PodLogs(tmp_path / "absent"), rank_target(7, pod_uid=UID))


def test_a_pod_of_several_ranks_has_no_single_one(tmp_path):
    (tmp_path / f"a_b_{UID}" / "c").mkdir(parents=True)
    (tmp_path / f"a_b_{UID}" / "c" / "0.log").write_bytes(b"")
    ranks = [rank_target(rank, pod_uid=UID) for rank in range(2)]
    assert [None] == list(found(PodLogs(tmp_path), *ranks)[0].values())


def test_torchruns_files_of_all_attempts_are_found(tmp_path):
    run = tmp_path / "logs" / "none_abc123"
    for attempt in range(2):
        for local_rank in range(2):
            directory = run / f"attempt_{attempt}" / str(local_rank)
            directory.mkdir(parents=True)
            (directory / "stdout.log").write_bytes(b"")
            (directory / "error.json").write_text("{}")
    ranks = [
        rank_target(8 + local, local_rank=local, run_directory=str(run), pid=4_000_000_000)
        for local in range(2)
    ]
    files, _ = found(TorchrunLogs(tmp_path), *ranks)
    assert [8, 9, 8, 9] == [files[path] for path in sorted(files)]


def test_torchruns_command_line_names_its_directory(tmp_path):
    proc, logs = tmp_path / "proc", tmp_path / "logs"
    (proc / "5" / "root").mkdir(parents=True)
    (proc / "5" / "cwd").symlink_to(tmp_path)
    (proc / "5" / "cmdline").write_bytes(b"python\0/usr/bin/torchrun\0--log-dir\0logs\0train.py\0")
    (logs / "none_x" / "attempt_0" / "0").mkdir(parents=True)
    (logs / "none_x" / "attempt_0" / "0" / "stderr.log").write_bytes(b"")
    holder = HolderTarget("job", 5, 0.0)
    files, _ = found(TorchrunLogs(proc), rank_target(8, local_rank=0), holders=[holder])
    assert [8] == list(files.values())
    late = HolderTarget("job", 5, 4e9)
    assert ({}, []) == found(TorchrunLogs(proc), rank_target(8, local_rank=0), holders=[late])


@pytest.mark.parametrize(
    ("error_file", "directory"),
    [
        ("/tmp/x/none_1/attempt_0/3/error.json", "/tmp/x/none_1"),
        ("relative/none_1/attempt_0/3/error.json", ""),
        ("/tmp/../none_1/attempt_0/3/error.json", ""),
        ("/error.json", ""),
        ("", ""),
    ],
)
def test_the_directory_of_a_run_comes_from_a_ranks_environment(error_file, directory):
    assert directory == _run_directory(error_file)


def test_patterns_are_filled_in_with_the_jobs_and_ranks_of_this_node(tmp_path):
    for name in ("17/rank-0.log", "17/rank-1.log", "18/rank-0.log", "team_a/rank-0.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    provider = ConfiguredPaths([f"{tmp_path}/{{job_id}}/rank-{{rank}}.log"], 100)
    ranks = [rank_target(0, job_id="17"), rank_target(0, job_id="team/a")]
    files, _ = found(provider, *ranks)
    assert {f"{tmp_path}/17/rank-0.log": 0, f"{tmp_path}/team_a/rank-0.log": 0} == files


@pytest.mark.parametrize("job_id", ["..", "*", "", "../17"])
def test_a_jobs_name_is_no_path(tmp_path, job_id):
    (tmp_path / "17").mkdir()
    (tmp_path / "secret.log").write_bytes(b"")
    provider = ConfiguredPaths([f"{tmp_path}/17/{{job_id}}/*.log"], 100)
    assert ({}, []) == found(provider, rank_target(job_id=job_id))


def test_directories_beside_the_files_are_passed_over(tmp_path):
    (tmp_path / "a.log").mkdir()
    (tmp_path / "b.log").write_bytes(b"")
    os.mkfifo(tmp_path / "c.log")
    provider = ConfiguredPaths([f"{tmp_path}/*.log"], 100)
    assert ({f"{tmp_path}/b.log": None}, ["pipe"]) == found(provider, rank_target())


@pytest.mark.parametrize("pattern", ["relative/*.log", "/logs/{node}.log", "/logs/{job_id"])
def test_patterns_that_cannot_be_are_refused(pattern):
    with pytest.raises(ValueError, match="paths"):
        LogsConfig(paths=[pattern])


def test_what_is_touched_can_be_seen_from_outside():
    memory = memoryview(bytearray(4096))
    guard = MarkedGuard(memory)
    guard.enter("mount 29")
    guard.enter("mount 29")
    assert (2, "mount 29") == read_mark(memory)
    guard.enter("/logs")
    assert (3, "/logs") == read_mark(memory)
    guard.leave()
    assert (3, "") == read_mark(memory)
