"""``diagnose --stacks`` against a real gloo job that hangs: it shows where the rank stands."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec
from pathlib import Path

import bcrypt
import pytest
from asking import wait_for

from detector.fake_prometheus import FakePrometheus, fake_prometheus, success
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.stack.servers import free_ports
from peerwatch_detector.__main__ import main

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("plays-1"),
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]

PLACE = Place(Path(__file__).parents[2])
# Rank 1 does not come to the collective before its standard input ends.
TRAIN = """
import os, sys
import torch
from torch import distributed as dist

def wait_for_a_lock():
    sys.stdin.readline()

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
if rank == 1:
    wait_for_a_lock()
dist.all_reduce(torch.ones(4))
"""
VERDICT = {
    "class": "not_launched",
    "node": "c0",
    "rank": "1",
    "domain": "unknown",
    "confidence": "likely",
    "action": "isolate",
    "summary": "rank 1 on node c0 did not launch all_reduce 1; 1 rank waits",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pw-stacks-") as name:
        yield Path(name)


@pytest.fixture
def exporter(folder: Path) -> Iterator[str]:
    """Run two ranks and the exporter of their node; return its address."""
    heartbeats, (port,) = folder / "heartbeats", free_ports(1)
    heartbeats.mkdir()
    (folder / "train.py").write_text(TRAIN)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (folder / "web.yaml").write_text(json.dumps({"basic_auth_users": {"ops": hashed}}))
    settings = {
        "listen": {"address": "127.0.0.1", "port": port},
        "web": {"config_file": str(folder / "web.yaml")},
        "heartbeat": {"directory": str(heartbeats), "stacks": True},
        "scope": {"kind": "processes", "environment": {"PEERWATCH_NODE": str(folder)}},
        "collectors": {"enabled": ["jobs", "ranks"]},
    }
    (folder / "exporter.yaml").write_text(json.dumps(settings))
    program = [
        sys.executable,
        "-m",
        "peerwatch_exporter",
        "--config",
        str(folder / "exporter.yaml"),
    ]
    script = [sys.executable, "-P", str(folder / "train.py"), str(folder / "store")]
    with ExitStack() as started:
        for rank in range(2):
            environment = PLACE.environment(
                PYTHONPATH=str(PLACE.hook),
                PEERWATCH_HEARTBEAT_DIR=str(heartbeats),
                PEERWATCH_NODE=str(folder),
                PEERWATCH_JOB_ID="llm",
                RANK=str(rank),
                WORLD_SIZE="2",
                OMP_NUM_THREADS="1",
            )
            _start(started, script, environment, folder / f"rank-{rank}.log")
        _start(started, program, PLACE.environment(), folder / "exporter.log")
        yield f"127.0.0.1:{port}"


def _start(
    started: ExitStack, arguments: list[str], environment: dict[str, str], log: Path
) -> None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment
        )
    started.callback(process.communicate)
    started.callback(process.kill)


def publish(server: FakePrometheus, exporter: str) -> None:
    """Answer as a Prometheus that a detector's verdict has reached."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        asked = server.requests[-1].form["query"]
        found = [{"metric": VERDICT, "value": [1, "1"]}]
        if "peerwatch_diagnosis_last_success" in asked:
            found = [{"metric": {}, "value": [1, "1700000000"]}]
        elif "rank_info" in asked:
            found = [{"metric": {"instance": exporter, "node": "c0"}, "value": [1, "1"]}]
        success("vector", found)(handler)

    server.response = respond


def test_the_stack_of_a_rank_that_hangs_names_its_line(
    folder: Path, exporter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "password").write_text("secret\n")
    login = {"username": "ops", "password_file": str(folder / "password")}
    (folder / "detector.yaml").write_text(json.dumps({"exporters": login}))
    with fake_prometheus(success("vector", [])) as server:
        publish(server, exporter)
        command = ["diagnose", "--job-id", "llm", "--prometheus", server.url, "--stacks"]

        def shown() -> str:
            code = main([*command, "--config", str(folder / "detector.yaml")])
            text = capsys.readouterr().out
            return text if code == 0 and "wait_for_a_lock" in text else ""

        text = wait_for("the stack of rank 1", shown)

    lines = text.splitlines()
    assert f"{VERDICT['summary']}; its main thread is at train.py:7 (wait_for_a_lock)" in lines
    place = next(line for line in lines if "in wait_for_a_lock" in line)
    assert 'train.py", line 7 in wait_for_a_lock' in place
