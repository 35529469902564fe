"""Nothing of the demo's Slurm is left running."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from peerwatch_demo.response.slurm_job import kill_left


@pytest.fixture
def start(tmp_path):
    """Start a process with these variables alone; whatever is left of them ends with the test."""
    started = []

    def run(**environment):
        started.append(subprocess.Popen(["/bin/sleep", "600"], env=environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_only_processes_of_that_slurm_are_killed(tmp_path, start):
    ours = start(**os.environ, SLURM_CONF=str(tmp_path / "slurm.conf"))
    other = start(**os.environ, SLURM_CONF=str(tmp_path / "slurm.conf.2"))
    none = start()
    assert [ours.pid] == kill_left(str(tmp_path / "slurm.conf"))
    assert -9 == ours.wait(300)
    assert other.poll() is None
    assert none.poll() is None


def test_a_process_that_has_just_started_is_killed_too(tmp_path, start, monkeypatch):
    """The kernel shows no environment of a process whose new program is being loaded."""
    ours = start(SLURM_CONF=str(tmp_path / "slurm.conf"))
    read, reads = Path.read_bytes, []

    def amid_an_exec(path):
        if path != Path(f"/proc/{ours.pid}/environ"):
            return read(path)
        reads.append(path)
        return read(path) if len(reads) > 1 else b""

    monkeypatch.setattr(Path, "read_bytes", amid_an_exec)
    assert [ours.pid] == kill_left(str(tmp_path / "slurm.conf"))
    assert -9 == ours.wait(300)
