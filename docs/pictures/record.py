"""Lets a small fleet run and keeps what Prometheus saw and what the web UI showed at its end.

Only hardware and accounting are simulated: real exporters over simulated nodes, the shipped rules
and routes in a real Prometheus and Alertmanager, the detector with its defaults, a responder in its
dry run, and the books of a history that is drawn by lot.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import rooms
from programs import Inbox, Programs

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
# What the others of a job do from then on: a rank that hangs makes all of them wait, and so does a
# memory error that ends one.
_PEERS = {"llm-pretrain-31": "waiting", "eval-12": "waiting"}

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


def record(
    folder: Path, say: Callable[[str], None], *, hold: Callable[[], object] | None = None
) -> Recording:
    """Run the fleet for some minutes, and leave Prometheus' data and the rooms in a folder.

    Parameters
    ----------
    folder
        Does not exist yet.
    say
        Told how far it is.
    hold
        Called before everything is taken down, with the address of the web UI said before.
    """
    with tempfile.TemporaryDirectory(prefix="peerwatch-pictures-") as temporary:
        place = Path(temporary)
        with Inbox() as inbox, Stack(place, stop_seconds=_STOP_SECONDS) as stack:
            sampled = place / "exporter.yaml"
            sampled.write_text("sampler: {interval_milliseconds: 50}\n")
            nodes = fleet(sampled)
            targets = start_nodes(stack, nodes, _HEALTHY_SECONDS)
            start = time.time()
            say(f"{len(nodes)} exporters serve; the faults begin in {_HEALTHY_SECONDS} s")
            web = _watch(stack, targets, nodes, inbox)
            while (left := start + _HEALTHY_SECONDS + _FAULTY_SECONDS - time.time()) > 0:
                say(f"recording, {left:.0f} s to go")
                time.sleep(min(30.0, left))
            rooms.save(web, inbox, place / rooms.FOLDER)
            recording = Recording(start, time.time())
            if hold is not None:
                say(f"the web UI is at {web}, logs and settings are in {place}")
                hold()
        shutil.copytree(place / "prometheus" / "data", folder)
        shutil.copytree(place / rooms.FOLDER, folder / rooms.FOLDER)
    (folder / "recording.json").write_text(json.dumps(asdict(recording)) + "\n")
    return recording


def _watch(stack: Stack, targets: list[Target], nodes: list[DemoNode], inbox: Inbox) -> str:
    """Start everything that watches, and return the address of the web UI."""
    programs = Programs(stack, CLUSTER)
    notifier = programs.start_alertmanager(inbox)
    targets = [
        Target(target.job, target.address, {**target.labels, "cluster": CLUSTER})
        for target in targets
    ]
    config = prometheus_config(
        [*targets, *programs.targets()], rules=RULES, alertmanager=notifier.url, interval="2s"
    )
    (server_port,) = free_ports(1)
    server = prometheus(stack, server_port, with_job_ids(config, nodes))
    programs.start_detector(server.url)
    programs.start_responder(server.url, notifier.url)
    programs.start_reliability([node.name for node in nodes])
    return programs.detector_url


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
