"""A line in a rank's log, read by a real exporter, becomes a page of a real Alertmanager.

Three nodes of one rank each. Rank 1 writes what PyTorch writes of an uncorrectable memory error,
the others that they lost their connection to it, and no rank makes a step any more. The rules are
those that ship, and so are the routes; only the timers of Alertmanager are a tenth as long.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from asking import query, wait_for

from alertmanager_live import scaled
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.stack.servers import (
    Server,
    Stack,
    Target,
    alertmanager,
    free_ports,
    prometheus,
    prometheus_config,
)
from peerwatch_demo.stack.webhook import Alert, WebhookReceiver

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

ROOT = Path(__file__).parents[2]
PLACE = Place(ROOT)
JOB, NODES = "llm-fatal", ("c0", "c1", "c2")
RULES = sorted((ROOT / "rules").glob("*.rules.yaml"))
# Makes steps, and says so, until there is something to write.
RANK = """
import json, os, select, sys, time
from pathlib import Path

rank = int(os.environ["RANK"])
file = Path(os.environ["HEARTBEATS"]) / f"rank-{rank}.json"
about = {"rank": rank, "local_rank": 0, "world_size": 3, "pid": os.getpid()}
step, stepped = 0, 0.0
while True:
    readable, _, _ = select.select([sys.stdin], [], [], 0.2)
    if readable:
        break
    step, stepped = step + 1, time.time()
    words = about | {"job_id": os.environ["PEERWATCH_JOB_ID"], "step": step}
    said = file.with_suffix(".new")
    said.write_text(json.dumps(words | {"time": stepped, "last_step_time": stepped}))
    said.rename(file)
print(sys.stdin.readline().replace("|", chr(10)), file=sys.stderr, flush=True)
# It hangs, as ranks do whose peers are gone.
while sys.stdin.readline():
    pass
"""
FATAL = (
    'Traceback (most recent call last):|  File "train.py", line 118, in step|    loss.backward()|'
    "RuntimeError: CUDA error: uncorrectable ECC error encountered"
)
LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
    "Connection closed by peer [10.0.0.7]:1234"
)


class Ranks:
    """One rank on each node, with its standard error in a file."""

    def __init__(self, folder: Path) -> None:
        self.processes = []
        for rank, node in enumerate(NODES):
            heartbeats = folder / node / "heartbeat"
            heartbeats.mkdir(parents=True)
            with (folder / node / "rank.err").open("wb") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-c", RANK],
                    stdin=subprocess.PIPE,
                    stdout=errors,
                    stderr=errors,
                    env=PLACE.environment(
                        HEARTBEATS=str(heartbeats),
                        PEERWATCH_NODE=str(folder / node),
                        PEERWATCH_JOB_ID=JOB,
                        RANK=str(rank),
                        WORLD_SIZE=str(len(NODES)),
                    ),
                )
            self.processes.append(process)

    def write(self, rank: int, line: str) -> None:
        """Let a rank write a line, and make no step after it."""
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def exporter(stack: Stack, node: str, port: int) -> Target:
    settings = {
        "heartbeat": {"directory": str(stack.directory / node / "heartbeat")},
        "scope": {
            "kind": "processes",
            "environment": {"PEERWATCH_NODE": str(stack.directory / node)},
        },
        "collectors": {"enabled": ["jobs", "ranks", "logs"]},
        # What this machine's kernel says is another matter.
        "logs": {"enabled": True, "kernel": False, "pods_directory": None},
    }
    path = stack.directory / node / "exporter.yaml"
    path.write_text(json.dumps(settings))
    address = f"127.0.0.1:{port}"
    stack.start(
        node,
        [
            *(sys.executable, "-m", "peerwatch_exporter"),
            *("--config", str(path), "--listen", address),
        ],
        environment=PLACE.environment(),
        ready=f"http://{address}/-/ready",
    )
    return Target("peerwatch-exporter", address, {"node": node})


def detector(stack: Stack, port: int, server: Server) -> None:
    settings = {
        "prometheus": {"url": server.url},
        "listen": {"address": "127.0.0.1", "port": port},
    }
    path = stack.directory / "detector.yaml"
    path.write_text(json.dumps(settings))
    stack.start(
        "detector",
        [sys.executable, "-m", "peerwatch_detector", "run", "--config", str(path)],
        environment=PLACE.environment(),
        ready=f"http://127.0.0.1:{port}/-/healthy",
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, WebhookReceiver]]:
    """A job that has failed, seen by everything from the exporters to the pager."""
    folder = tmp_path_factory.mktemp("fatal")
    shipped = yaml.safe_load((ROOT / "rules" / "alertmanager.example.yaml").read_text())
    with WebhookReceiver() as receiver, Stack(folder) as stack:
        ranks = Ranks(folder)
        stack.on_stop(ranks.end)
        *ports, detector_port, server_port, manager_port = free_ports(len(NODES) + 3)
        targets = [exporter(stack, node, port) for node, port in zip(NODES, ports, strict=True)]
        targets.append(Target("peerwatch-detector", f"127.0.0.1:{detector_port}", {}))
        manager = alertmanager(stack, manager_port, json.dumps(scaled(shipped, 10, receiver.url)))
        # A scrape may take as long as the interval: on a busy machine that is seconds.
        config = prometheus_config(targets, rules=RULES, alertmanager=manager.url, interval="5s")
        server = prometheus(stack, server_port, config)
        seen = f'rank_steps_total{{job_id="{JOB}"}} > 0 and on (node) log_files > 0'
        wait_for("all ranks and their logs", lambda: len(query(server.url, seen)) == len(NODES))
        ranks.write(1, FATAL)
        for rank in (0, 2):
            ranks.write(rank, LOST)
        detector(stack, detector_port, server)
        yield server, receiver


def about_lines(receiver: WebhookReceiver) -> list[Alert]:
    """Return what the pager was told of nodes that a line named.

    A node that a busy machine does not scrape for long may be paged for as well.
    """
    return [
        alert
        for page in receiver.pages()
        for alert in page.firing()
        if alert.labels.get("metric") == "fatal_line"
    ]


def test_the_node_whose_rank_wrote_it_is_paged_and_no_other(
    pages: tuple[Server, WebhookReceiver],
) -> None:
    server, receiver = pages
    alert = wait_for("a page", lambda: about_lines(receiver))[0]

    assert ("PeerwatchFaultyNode", "c1", JOB, "evidence", "critical") == tuple(
        alert.labels[name] for name in ("alertname", "node", "job_id", "method", "severity")
    )
    text = alert.annotations["description"]
    assert f"Training job {JOB}: c1 is named by the job itself (fatal_line)" in text
    assert (
        "Why: rank 1 on node c1 wrote a fatal error (cuda ecc): the node has an uncorrectable "
        "memory error"
    ) in text
    assert {"c1"} == {each.labels["node"] for each in about_lines(receiver)}
    # What the victims wrote was read as well.
    signatures = query(server.url, f'log_events_total{{job_id="{JOB}"}} > 0')
    assert {("c0", "D"), ("c1", "H"), ("c2", "D")} == {
        (each["metric"]["node"], each["metric"]["class"]) for each in signatures
    }
