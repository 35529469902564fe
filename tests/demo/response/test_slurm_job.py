"""Nothing of the demo's Slurm is left running."""

from __future__ import annotations

import os
import subprocess

from peerwatch_demo.response.slurm_job import kill_left


def test_only_processes_of_that_slurm_are_killed(tmp_path):
    def start(name):
        environment = {**os.environ, "SLURM_CONF": str(tmp_path / name)}
        return subprocess.Popen(["sleep", "600"], env=environment)

    ours, other = start("slurm.conf"), start("slurm.conf.2")
    try:
        assert kill_left(str(tmp_path / "slurm.conf")) == [ours.pid]
        assert ours.wait(300) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
