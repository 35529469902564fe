"""Real ranks with the hook, real exporters, a real Prometheus: a rank is killed, another stopped.

Four nodes of one rank each; the detector runs with its default settings. The series of recording
rules are missing, so nothing can be compared: what is found, the job itself has said.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import query, wait_for

from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.stack.servers import (
    Server,
    Stack,
    Target,
    free_ports,
    prometheus,
    prometheus_config,
)
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading.reader import PrometheusReader, instant_reader
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.loop import Loop

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

PLACE = Place(Path(__file__).parents[2])
JOB = "llm-evidence"
RANK = "import sys; sys.stdin.readline()"
NODES = tuple(f"c{number}" for number in range(4))


class TrainingJob:
    """Four ranks, one on each node; they end when their standard input does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, rank: int) -> None:
        self.ranks[rank] = subprocess.Popen(
            [sys.executable, "-c", RANK],
            stdin=subprocess.PIPE,
            env=PLACE.environment(
                PYTHONPATH=str(PLACE.hook),
                PEERWATCH_HEARTBEAT_DIR=str(self._folder / NODES[rank] / "heartbeat"),
                PEERWATCH_NODE=f"{self._folder}/{NODES[rank]}",
                PEERWATCH_JOB_ID=JOB,
                RANK=str(rank),
                WORLD_SIZE="4",
            ),
        )

    def complete(self) -> None:
        """Start the ranks that do not run: tests come in any order, and leave some ended."""
        for rank in range(len(NODES)):
            if rank not in self.ranks or self.ranks[rank].poll() is not None:
                self.start(rank)

    def kill(self, rank: int) -> None:
        self.ranks[rank].kill()
        self.ranks[rank].communicate()

    def finish(self, rank: int) -> None:
        self.ranks[rank].communicate()

    def end(self) -> None:
        for process in self.ranks.values():
            process.kill()
            process.communicate()


class RunningDetector:
    """A detector's loop in a thread, and what it says."""

    def __init__(self, url: str) -> None:
        self.config = DetectorConfig.model_validate({"prometheus": {"url": url}})
        self._reader = PrometheusReader(self.config.prometheus)
        self._instants = instant_reader(self.config)
        self.detector = Detector(self.config, self._reader, EMPTY, instants=self._instants)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=Loop(self.detector).run, args=(self._stop,))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._reader.close()
        self._instants.close()
        self._thread.join(timeout=60)

    def asked(self) -> bool:
        found = self.detector.snapshot.diagnoses
        return found is not None and JOB in found.last_success

    def findings(self) -> list[tuple[Finding, str]]:
        return [
            (finding, detection.explanations[finding].sentence)
            for detection in self.detector.snapshot.detections
            for finding in detection.findings
        ]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="peerwatch-evidence-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def job(folder: Path) -> Iterator[TrainingJob]:
    started = TrainingJob(folder)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Stack(folder) as stack:
        *ports, server_port = free_ports(len(NODES) + 1)
        targets = []
        for node, port in zip(NODES, ports, strict=True):
            (folder / node / "heartbeat").mkdir(parents=True)
            settings = {
                "heartbeat": {"directory": str(folder / node / "heartbeat")},
                "scope": {
                    "kind": "processes",
                    "environment": {"PEERWATCH_NODE": f"{folder}/{node}"},
                },
                "collectors": {"enabled": ["jobs", "ranks"]},
            }
            path = folder / node / "exporter.yaml"
            path.write_text(json.dumps(settings))
            address = f"127.0.0.1:{port}"
            command = [sys.executable, "-m", "peerwatch_exporter", "--config", str(path)]
            stack.start(
                node,
                [*command, "--listen", address],
                environment=PLACE.environment(),
                ready=f"http://{address}/-/ready",
            )
            targets.append(Target("peerwatch-exporter", address, {"node": node}))
        # A scrape may take as long as the interval: on a busy machine that is seconds.
        yield prometheus(stack, server_port, prometheus_config(targets, rules=[], interval="5s"))


@pytest.fixture(scope="module")
def detector(server: Server, job: TrainingJob) -> Iterator[RunningDetector]:
    job.complete()
    wait_for_all_ranks(server)
    running = RunningDetector(server.url)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(autouse=True)
def healthy(detector: RunningDetector, server: Server, job: TrainingJob) -> None:
    """Let all ranks run, and the detector know it."""
    job.complete()
    wait_for_all_ranks(server)
    wait_for("an answer of the diagnosers", detector.asked)
    wait_for("no finding", lambda: not detector.findings())


def wait_for_all_ranks(server: Server) -> None:
    state = f'rank_process_state{{job_id="{JOB}", state=~"%s"}} == 1'
    running, ended = state % "running|sleeping", state % "exited|zombie|stopped"
    wait_for(
        "all ranks",
        lambda: len(query(server.url, running)) == len(NODES) and not query(server.url, ended),
    )


def test_a_killed_rank_is_named_and_falls_when_it_is_back(
    detector: RunningDetector, job: TrainingJob
) -> None:
    job.kill(3)
    killed = time.time()
    ((found, why),) = wait_for("a finding", detector.findings)

    assert ("c3", "rank_exited") == (found.node, found.metric)
    assert why.startswith("rank 3 on node c3 was killed or ended without its exit handlers; 3 ")
    # It begins when the rank was killed, not when that was found out; exporters look each second,
    # if the machine lets them.
    assert abs(found.since - killed) < 60
    job.start(3)
    wait_for("no finding", lambda: not detector.findings())


def test_a_stopped_rank_is_named(detector: RunningDetector, job: TrainingJob) -> None:
    job.ranks[1].send_signal(signal.SIGSTOP)
    ((found, why),) = wait_for("a finding", detector.findings)

    assert ("c1", "rank_stopped") == (found.node, found.metric)
    assert "rank 1 on node c1 is stopped" in why
    job.ranks[1].send_signal(signal.SIGCONT)
    wait_for("no finding", lambda: not detector.findings())


def test_a_job_that_finishes_rank_by_rank_blames_nobody_and_is_over(
    detector: RunningDetector, job: TrainingJob, server: Server, folder: Path
) -> None:
    left = (folder / "c0" / "heartbeat" / "rank-0.json").read_text()
    for rank in (1, 2, 3):
        job.finish(rank)
        wait_for(
            f"rank {rank} has left",
            lambda rank=rank: not query(server.url, f'rank_info{{job_id="{JOB}",rank="{rank}"}}'),
        )
    # One fails at the end, and leaves its heartbeat.
    job.kill(0)
    (folder / "c0" / "heartbeat" / "rank-0.json").write_text(left)
    wait_for("the end", lambda: not query(server.url, f'host_job_info{{job_id="{JOB}"}}'))
    assert [] == detector.findings()
