"""Lets a small fleet run and keeps what Prometheus saw, for pictures of the dashboards.

Only the hardware is simulated: real exporters over simulated nodes, the shipped rules in a real
Prometheus, the detector with its defaults.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from peerwatch_demo.fleet.demo_nodes import DemoNode, start_nodes, with_job_ids
from peerwatch_demo.stack.servers import (
    Server,
    Stack,
    Target,
    find_program,
    free_ports,
    prometheus,
    prometheus_config,
)

ROOT = Path(__file__).resolve().parents[2]
RULES = sorted((ROOT / "rules").glob("*.rules.yaml"))
CLUSTER = "berlin"
FAULTY, PAUSING, DEFECTIVE = "gpu-005", "gpu-103", "gpu-202"
JOBS = {
    "llm-pretrain-31": [f"gpu-{number:03d}" for number in range(1, 9)],
    "vision-7": [f"gpu-{number:03d}" for number in range(101, 106)],
    "eval-12": [f"gpu-{number:03d}" for number in range(201, 205)],
}
_FAULTS = {FAULTY: "hung_rank", PAUSING: "pfc_storm", DEFECTIVE: "ecc_error"}
# What the others of a job do from then on: a rank that hangs makes all of them wait.
_PEERS = {"llm-pretrain-31": "waiting"}

# Long enough for the findings that take longest by the detector's defaults.
_HEALTHY_SECONDS, _FAULTY_SECONDS = 200, 320
# Prometheus writes what it holds to disk when it is stopped.
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Recording:
    """A folder with Prometheus' data, and when it was taken.

    Parameters
    ----------
    start, end
        Unix times in seconds.
    """

    start: float
    end: float


def fleet(sampled: Path) -> list[DemoNode]:
    """Return the nodes of three jobs, each with one fault.

    Parameters
    ----------
    sampled
        Settings that switch the exporter's sampler on, for the nodes that are shown.
    """
    return [
        DemoNode(
            name,
            job_id,
            _FAULTS.get(name, _PEERS.get(job_id, "healthy")),
            ("--config", str(sampled)) if name in _FAULTS else (),
        )
        for job_id, names in JOBS.items()
        for name in names
    ]


def record(folder: Path, say: Callable[[str], None]) -> Recording:
    """Run the fleet for some minutes, and leave Prometheus' data in a folder.

    Parameters
    ----------
    folder
        Does not exist yet.
    say
        Told how far it is.
    """
    with tempfile.TemporaryDirectory(prefix="peerwatch-pictures-") as temporary:
        place = Path(temporary)
        with Stack(place, stop_seconds=_STOP_SECONDS) as stack:
            sampled = place / "exporter.yaml"
            sampled.write_text("sampler: {interval_milliseconds: 50}\n")
            nodes = fleet(sampled)
            targets = start_nodes(stack, nodes, _HEALTHY_SECONDS)
            start = time.time()
            say(f"{len(nodes)} exporters serve; the faults begin in {_HEALTHY_SECONDS} s")
            _watch(stack, targets, nodes)
            while (left := start + _HEALTHY_SECONDS + _FAULTY_SECONDS - time.time()) > 0:
                say(f"recording, {left:.0f} s to go")
                time.sleep(min(30.0, left))
            recording = Recording(start, time.time())
        shutil.copytree(place / "prometheus" / "data", folder)
    (folder / "recording.json").write_text(json.dumps(asdict(recording)) + "\n")
    return recording


def _watch(stack: Stack, targets: list[Target], nodes: list[DemoNode]) -> None:
    """Start Prometheus and the detector."""
    server_port, detector_port = free_ports(2)
    detector = Target("peerwatch-detector", f"127.0.0.1:{detector_port}", {"cluster": CLUSTER})
    targets = [
        Target(target.job, target.address, {**target.labels, "cluster": CLUSTER})
        for target in targets
    ]
    config = prometheus_config([*targets, detector], rules=RULES, interval="2s")
    server = prometheus(stack, server_port, with_job_ids(config, nodes))
    settings = {
        "prometheus": {"url": server.url},
        "listen": {"address": "127.0.0.1", "port": detector_port},
        "cycle_seconds": 5,
    }
    path = stack.directory / "detector.yaml"
    path.write_text(yaml.safe_dump(settings))
    stack.start(
        "detector",
        [sys.executable, "-m", "peerwatch_detector", "run", "--config", str(path)],
        ready=f"http://127.0.0.1:{detector_port}/-/healthy",
    )


def replay(stack: Stack, folder: Path) -> Server:
    """Start a Prometheus that only answers from a recording."""
    config = folder / "prometheus.yml"
    config.write_text("{}\n")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    process = stack.start(
        "prometheus",
        [
            find_program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ],
        ready=f"{url}/-/ready",
    )
    return Server(url, process)


def load(folder: Path) -> Recording:
    """Return when a recording was taken."""
    return Recording(**json.loads((folder / "recording.json").read_text()))
