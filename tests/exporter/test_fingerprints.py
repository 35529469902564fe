"""Files that are read again only when they changed: heartbeats and the mapping directory."""

from __future__ import annotations

import json
import os
import time

import pytest

from peerwatch_exporter.sources.files.fingerprints import file_fingerprints
from peerwatch_exporter.sources.jobs.heartbeat import HeartbeatFiles
from peerwatch_exporter.sources.jobs.mapping import MappingFiles


def later():
    """Return a time at which every file written so far is old enough."""
    return time.time() + 60


def write_heartbeat(directory, rank, step):
    (directory / f"rank-{rank}.json").write_text(
        json.dumps({"rank": rank, "time": 1, "step": step})
    )


def steps(heartbeats):
    return [heartbeat.step for heartbeat in heartbeats.ranks]


def test_heartbeats_that_do_not_change_are_the_same_object(tmp_path):
    files = HeartbeatFiles(clock=later)
    write_heartbeat(tmp_path, 0, 5)
    write_heartbeat(tmp_path, 1, 5)
    first = files.read(tmp_path)
    assert first is files.read(tmp_path)
    (tmp_path / "rank-1.json").unlink()
    write_heartbeat(tmp_path, 0, 6)
    assert [6] == steps(files.read(tmp_path))


def test_only_the_heartbeat_that_changed_is_read_again(tmp_path, monkeypatch):
    files = HeartbeatFiles(clock=later)
    write_heartbeat(tmp_path, 0, 5)
    write_heartbeat(tmp_path, 1, 5)
    files.read(tmp_path)
    write_heartbeat(tmp_path, 1, 66)
    # What is not read cannot be garbled.
    read = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text: (read.append(text), loads(text))[1])
    assert [5, 66] == steps(files.read(tmp_path))
    assert 1 == len(read)


@pytest.mark.parametrize("step", range(2, 9))
def test_heartbeat_written_twice_in_a_moment_is_seen_twice(tmp_path, step):
    """Same file, same size, perhaps the same time by the file system's clock."""
    files = HeartbeatFiles()
    write_heartbeat(tmp_path, 0, 1)
    assert [1] == steps(files.read(tmp_path))
    write_heartbeat(tmp_path, 0, step)
    assert [step] == steps(files.read(tmp_path))


def test_garbled_heartbeat_is_complained_about_every_time(tmp_path):
    files = HeartbeatFiles(clock=later)
    (tmp_path / "rank-0.json").write_text("{")
    assert [1, 1] == [len(files.read(tmp_path).problems) for _ in range(2)]


def test_mapping_that_does_not_change_is_the_same_object(tmp_path):
    files = MappingFiles(tmp_path, clock=later)
    (tmp_path / "0").write_text("a\n")
    first = files.read()
    assert first is files.read()
    (tmp_path / "0").write_text("b\n")
    assert ("b",) == files.read().job_ids
    (tmp_path / "1").write_text("c\n")
    assert ("b", "c") == files.read().job_ids
    (tmp_path / "0").unlink()
    assert ("c",) == files.read().job_ids


def test_mapping_written_twice_in_a_moment_is_seen_twice(tmp_path):
    files = MappingFiles(tmp_path)
    for job in "abcdefgh":
        (tmp_path / "0").write_text(f"{job}\n")
        assert (job,) == files.read().job_ids


def test_mapping_with_a_problem_is_read_every_time(tmp_path):
    files = MappingFiles(tmp_path, clock=later)
    (tmp_path / "bad").write_text("a\n")
    (tmp_path / "0").write_text("a\n")
    assert [1, 1] == [len(files.read().problems) for _ in range(2)]


def test_file_that_cannot_be_looked_at_has_no_sign(tmp_path):
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "here").write_text("")
    fingerprints = file_fingerprints(tmp_path)
    assert (None, 0) == (fingerprints["gone"], fingerprints["here"].size)
    before = fingerprints["here"]
    os.replace(tmp_path / "here", tmp_path / "old")  # noqa: PTH105 - the other one is new
    (tmp_path / "here").write_text("")
    assert before != file_fingerprints(tmp_path)["here"]
