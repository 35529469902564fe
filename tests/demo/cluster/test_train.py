"""The training job trains, writes checkpoints, and stays when it loses a peer."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from peerwatch_demo.incidents.lines import matcher
from peerwatch_demo.stack.servers import Process, Stack, free_ports
from peerwatch_demo.stack.watch import progress

pytest.importorskip("torch", reason="the training job needs the extra [train]")

DEMO = Path(__file__).resolve().parents[3] / "detector" / "peerwatch_demo"
SCRIPT = DEMO / "cluster" / "train.py"


def start_ranks(stack: Stack, *options: str) -> list[Process]:
    (port,) = free_ports(1)
    ranks = []
    for rank in range(2):
        environment = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        checkpoint = str(stack.directory / f"rank-{rank}.pt")
        command = [sys.executable, "-P", str(SCRIPT), "--checkpoint", checkpoint, *options]
        ranks.append(stack.start(f"rank-{rank}", command, environment=environment))
    return ranks


def wait_for(log: Path, text: str, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_two_ranks_learn_and_rank_0_writes_the_checkpoint(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        ranks = start_ranks(stack, "--steps", "100", "--device-seconds", "0")
        codes = [rank.popen.wait(120) for rank in ranks]

    first = float(ranks[0].log.read_text().split("loss=")[1].split()[0])
    assert [0, 0] == codes, ranks[0].tail() + ranks[1].tail()
    assert 100 == progress(ranks[0].log)["step"]
    assert progress(ranks[0].log)["loss"] < first
    assert "step=" not in ranks[1].log.read_text()
    assert ["rank-0.pt"] == [path.name for path in tmp_path.glob("*.pt")]


def test_a_rank_that_loses_its_peer_waits(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        ranks = start_ranks(stack, "--device-seconds", "0.01")
        wait_for(ranks[0].log, "step=5 ")
        ranks[1].signal(signal.SIGKILL)

        wait_for(ranks[0].log, "lost its peers")

        assert ranks[0].alive
    reader = matcher("job")
    events = reader.feed(ranks[0].log.read_bytes()) + reader.finish()
    assert ["gloo_connection"] == [each.signature.id for each in events]
