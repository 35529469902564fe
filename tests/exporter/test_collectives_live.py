"""Collectives of a real gloo job of 4 ranks, read by the real exporter's sources while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import peerwatch_exporter
from collectives_cases import collector_of, samples_of, wait_for
from hardware_cases import only

TRAINING = """
import os, sys, torch
import torch.distributed as dist

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=4)
groups = [dist.new_group([0, 1], group_desc="tensor"), dist.new_group([2, 3], group_desc="tensor")]
data = torch.ones(1000)
for line in sys.stdin:
    for _ in range(int(line)):
        dist.all_reduce(data, group=groups[rank // 2])
        dist.all_reduce(data)
dist.destroy_process_group()
"""


@pytest.fixture
def job(tmp_path):
    """Return the ranks of a job with the hook, and their heartbeats' directory."""
    script, heartbeats = tmp_path / "train.py", tmp_path / "heartbeats"
    script.write_text(TRAINING)
    heartbeats.mkdir()
    heartbeats.chmod(0o2755)
    hook = Path(peerwatch_exporter.__file__).parent / "hook"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "rendezvous")],
            env={
                **os.environ,
                "PYTHONPATH": str(hook),
                "PEERWATCH_HEARTBEAT_DIR": str(heartbeats),
                "PEERWATCH_JOB_ID": "collectives",
                "RANK": str(rank),
                "WORLD_SIZE": "4",
            },
            stdin=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    yield ranks, heartbeats
    for process in ranks:
        process.kill()
        with process:
            pass


def steps(ranks, count):
    for process in ranks:
        process.stdin.write(f"{count}\n")
        process.stdin.flush()


def read(collector):
    """Return what is published: builds of torch for CUDA mark groups of gloo's, others do not."""
    samples, error = samples_of(collector)
    return {
        tuple(part.removeprefix("gloo:") for part in key): samples[key] for key in samples
    }, error


def test_job_shows_its_groups_its_hang_and_its_stopped_rank(job):
    ranks, heartbeats = job
    collector, _ = collector_of(heartbeats, interval_seconds=1)

    def sequences(state):
        found = only(read(collector)[0], "collective_last_sequence")
        return {key[1:3]: value for key, value in found.items() if key[3] == state}

    try:
        steps(ranks, 30)
        everyone = {("0", "0"), ("1", "0"), ("2", "0"), ("3", "0")}
        everyone |= {("0", "1"), ("1", "1"), ("2", "2"), ("3", "2")}
        assert wait_for(lambda: dict.fromkeys(everyone, 30) == sequences("completed"), 180)
        samples, error = read(collector)
        assert error is None
        assert {
            ("collectives", "0", "default_pg", "0-3"),
            ("collectives", "1", "tensor", "0-1"),
            ("collectives", "2", "tensor", "2-3"),
        } == set(only(samples, "collective_group_info"))
        # The directory has the set-group-ID bit: its group may connect, and nobody else.
        assert 0o770 == (heartbeats / "rank-0.sock").stat().st_mode & 0o777
        totals = "collective_bytes_total", "collectives", "3", "2", "all_reduce"
        assert 30 * 4000 == samples[totals]

        # Rank 3 does not go on: 2 waits for it in their pair, 0 and 1 in the group of all.
        steps(ranks[:3], 1)
        waiting = {("0", "0"): 31, ("1", "0"): 31, ("2", "2"): 31, ("3", "2"): 30, ("3", "0"): 30}
        assert wait_for(lambda: waiting.items() <= sequences("launched").items())
        ages = lambda: only(read(collector)[0], "collective_in_flight_seconds")  # noqa: E731
        assert wait_for(lambda: ages()["collectives", "2", "2"] > 5)
        info = "collective_in_flight_info", "collectives", "2", "2", "all_reduce"
        samples, _ = read(collector)
        assert 31 == samples[(*info, "[1000]", "[1000]", "Float")]
        assert 0 == samples["collective_in_flight_seconds", "collectives", "3", "2"]

        # It is stopped: it does not answer, which is all that is said of it.
        ranks[3].send_signal(signal.SIGSTOP)
        up = "collective_source_up", "collectives", "3", "flight_recorder"
        assert wait_for(lambda: read(collector)[0].get(up) == 0)
        samples, error = read(collector)
        assert "recorder_no_answer" == error
        assert {up} == {key for key in samples if key[1:3] == ("collectives", "3")}
        ranks[3].send_signal(signal.SIGCONT)
        steps(ranks[3:], 1)
        assert wait_for(lambda: dict.fromkeys(everyone, 31) == sequences("completed"))
        for process in ranks:
            process.stdin.close()
        assert [0] * 4 == [process.wait(60) for process in ranks]
        assert [] == list(heartbeats.iterdir())
    finally:
        collector.close()
