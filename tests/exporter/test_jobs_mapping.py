"""Jobs that a mapping directory names, and what else may lie in it."""

from __future__ import annotations

import os
import re

import pytest

from hardware_cases import NOW, only
from jobs_node import (
    UUIDS,
    Node,
    rank_of,
)
from peerwatch_exporter.sources.jobs.merge import MOST_JOBS


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


# The mapping directory


def test_mapping_names_jobs_of_gpus_slices_and_node(node):
    node.boards()
    node.map("0", "4711")
    node.map("1.2", "mig")
    node.map("1.3", "mig", "other")
    node.map("2")
    node.map("node", "cpu", "4711")
    samples = node.collect()
    assert {("cpu", "mapping"), ("4711", "mapping"), ("mig", "mapping"), ("other", "mapping")} == (
        set(only(samples, "host_job_info"))
    )
    assert {
        ("0", UUIDS[0], "4711", "mapping", "", "", "", ""),
        ("1", UUIDS[1], "mig", "mapping", "", "", "", ""),
        ("1", UUIDS[1], "other", "mapping", "", "", "", ""),
    } == set(only(samples, "gpu_job_info"))
    assert {("0",): 1, ("1",): 2, ("2",): 0} == only(samples, "gpu_jobs")


def test_mapping_wins_over_the_environment_for_the_same_job(node):
    node.map("0", "job")
    node.map("2")
    node.map("node", "cpu", "job")
    node.process(11, environment=rank_of(0, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="3"))
    slurm = rank_of(0, PEERWATCH_JOB_ID="env", LOCAL_RANK="1", SLURM_JOB_GPUS="4-5")
    node.process(12, environment=slurm)
    for rank, job_id in ((9, "inside"), (8, "job")):
        node.tree.write(
            f"../heartbeats/rank-{rank}.json", f'{{"rank":{rank},"time":{NOW},"job_id":"{job_id}"}}'
        )
    samples = node.collect()
    assert {
        ("cpu", "mapping"),
        ("job", "mapping"),
        ("env", "peerwatch"),
        ("inside", "peerwatch"),
    } == set(only(samples, "host_job_info"))
    assert {("0", "job"), ("5", "env")} == {row[:2] for row in node.rows()}
    assert {("0",): 1, ("2",): 0, ("5",): 1} == only(samples, "gpu_jobs")


def test_shared_gpu_counts_its_jobs(node):
    node.map("0", "a", "b", "a")
    assert {("0",): 2} == only(node.collect(), "gpu_jobs")


def pipe(path):
    os.mkfifo(path)


GARBAGE = {
    "binary": ("binary", lambda path: path.write_bytes(b"\x7fELF\xff\xfe")),
    "zeros": ("binary", lambda path: path.write_bytes(bytes(64))),
    "huge": ("too_large", lambda path: path.write_bytes(b"7\n" * 40_000)),
    "directory": ("not_a_file", lambda path: path.mkdir()),
    "pipe without a writer": ("not_a_file", pipe),
    "device": ("not_a_file", lambda path: path.symlink_to("/dev/zero")),
    "symlink loop": ("unreadable", lambda path: path.symlink_to(path.name)),
    "below a file": ("unreadable", lambda path: path.symlink_to(path.parent / "1" / "x")),
    "endless line": ("job_id", lambda path: path.write_text("x" * 129)),
    "control characters": ("job_id", lambda path: path.write_text("4\x1b[2J\n")),
    "too many jobs": (
        "too_many_jobs",
        lambda path: path.write_text("\n".join(map(str, range(65)))),
    ),
}


@pytest.mark.parametrize(("reason", "make"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_named_once_and_counted_and_the_others_work(node, caplog, reason, make):
    make(node.map("1", "good").with_name("0"))
    samples = node.collect()
    assert ("1", "good") in {row[:2] for row in node.rows()}
    assert None is node.error
    assert 1 == samples["exporter_job_mapping_errors_total", reason]
    assert 3 == node.collect()["exporter_job_mapping_errors_total", reason]
    named = [record.getMessage() for record in caplog.records if "mapping file" in record.message]
    assert 1 == len(named)
    assert re.search(rf"file='[^']*/0' reason={reason} detail=", named[0])


@pytest.mark.parametrize("name", ["gpu0", "0.1.2", "1000", "0~", "README", "-1", "0 "])
def test_file_of_another_name_is_named_and_counted(node, caplog, name):
    node.map("1", "good")
    node.map(name, "bad")
    samples = node.collect()
    assert {("1", "good")} == {row[:2] for row in node.rows()}
    assert 1 == samples["exporter_job_mapping_errors_total", "name"]
    assert 1 == sum("reason=name" in record.getMessage() for record in caplog.records)


def test_files_under_construction_are_passed_over(node, caplog):
    node.map("1", "good")
    node.map(".0.tmp", "bad")
    assert 0 == sum(only(node.collect(), "exporter_job_mapping_errors_total").values())
    assert [] == caplog.records


def test_good_lines_of_a_file_with_a_bad_one_count(node):
    node.map("0", "good", "x" * 129, "better")
    assert {"good", "better"} == {row[1] for row in node.rows()}


def test_repaired_file_is_named_again_when_it_breaks_again(node, caplog):
    path = node.map("0", "\0")
    node.collect()
    path.write_text("7\n")
    node.collect()
    path.write_text("\0")
    node.collect()
    assert 2 == len(caplog.records)


def test_unreadable_file_is_an_error_of_its_own(node, monkeypatch):
    node.map("0", "secret")
    node.map("1", "good")
    real = os.open

    def refuse(path, *rest):
        if str(path).endswith("/0"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    samples = node.collect()
    assert 1 == samples["exporter_job_mapping_errors_total", "unreadable"]
    assert {("1",): 1} == only(samples, "gpu_jobs")


def test_flood_of_files_and_jobs_is_bounded(node):
    for gpu in range(100):
        node.map(str(gpu), *(f"{gpu}-{n}" for n in range(60)))
    samples = node.collect()
    assert MOST_JOBS == len(only(samples, "host_job_info"))
    assert "jobs_too_many_jobs" == node.error.error_class


def test_missing_mapping_directory_is_said_and_the_environment_still_counts(node):
    node.map("0", "x").unlink()
    node.jobs["mapping_directory"].rmdir()
    node.process(11, environment=rank_of(0))
    samples = node.collect()
    assert {("job", "peerwatch"): 1} == only(samples, "host_job_info")
    assert {("mapping",): 0, ("environment",): 1, ("cgroup",): 1, ("heartbeat",): 1} == only(
        samples, "exporter_job_provider_up"
    )
    assert "mapping_os_error" == node.error.error_class
