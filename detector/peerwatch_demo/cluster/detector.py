"""The detector as the demo runs it: its configuration, its training, its start.

Four things differ from a production configuration and nothing else: waiting times are shorter, only
metrics that a node of the demo has of its own are compared, the minimum effect size of one metric
allows for eight nodes on one small machine, and a fault counts whether or not it slows the job: one
that only fills a node's memory shall page here, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import yaml

from peerwatch_demo.cluster.nodes import JOB_ID, Place
from peerwatch_demo.cluster.settings import Patience
from peerwatch_demo.stack.process import Process, StackError
from peerwatch_demo.stack.servers import Server, Stack

DETECTOR_JOB = "peerwatch-detector"

_OVERRIDES: dict[str, dict[str, object]] = {
    # Eight ranks on two cores answer late now and then, and TCP sends a probe again: up to 9 a
    # second were seen in healthy training, over 100 on a broken link.
    "tcp_retransmissions": {"min_effect_size": 20},
}
# In the preset's order of priority.
_METRICS = ("heartbeat_age", "tcp_retransmissions", "tcp_send_queue", "cpu_usage", "memory_usage")
# Only a namespace has a network of its own.
_NETWORK = ("tcp_retransmissions", "tcp_send_queue")
# A tenth of the default is enough for metrics this calm, and takes seconds.
_TRAINING_STEPS = 300
# Chosen: far longer than that on a busy machine; it ends what would wait for ever.
_TRAINING_SECONDS = 300.0


def detector_config(
    prometheus: str, port: int, models: Path | None, patience: Patience, *, namespaces: bool
) -> str:
    """Return the detector's configuration file."""
    enabled = [name for name in _METRICS if namespaces or name not in _NETWORK]
    config: dict[str, object] = {
        "prometheus": {"url": prometheus, "timeout_seconds": 5},
        "listen": {"address": "127.0.0.1", "port": port},
        "cycle_seconds": 1,
        "history_seconds": 120,
        "similarity": {"baseline_seconds": 60},
        "continuity": {"threshold_seconds": patience.continuity_seconds, "clear_seconds": 60},
        "absent": {"after_seconds": 5, "threshold_seconds": patience.absent_seconds},
        "peerwatch": {"progress": False},
        "metrics": {
            "enabled": enabled,
            "overrides": {name: _OVERRIDES[name] for name in enabled if name in _OVERRIDES},
        },
    }
    if models is not None:
        config["models"] = str(models)
    return yaml.safe_dump(config, sort_keys=False)


def train_models(
    stack: Stack,
    place: Place,
    config: str,
    start: float,
    end: float,
    models: Path,
    *,
    job_id: str = JOB_ID,
) -> Process:
    """Start ``peerwatch-detector train`` on a healthy range of the job; the caller waits."""
    path = stack.directory / "training.yaml"
    path.write_text(config)
    return stack.start(
        "detector-train",
        [
            place.python, "-m", "peerwatch_detector", "train",
            "--config", str(path), "--job-id", job_id,
            "--start", f"{start:.0f}", "--end", f"{end:.0f}",
            "--output", str(models), "--steps", str(_TRAINING_STEPS),
        ],
        environment=place.environment(),
    )  # fmt: skip


def follow_training(training: Process, say: Callable[[str], None]) -> None:
    """Wait until the models are trained, and pass on what the command prints.

    Raises
    ------
    StackError
        If it fails or takes too long; with the end of its log.
    """
    began = spoke = time.monotonic()
    shown = 0
    running = True
    while running:
        running = training.alive  # looked at before the log, so that its last lines are read
        now = time.monotonic()
        if now - began > _TRAINING_SECONDS:
            raise StackError(f"Training the models took over {_TRAINING_SECONDS:g} s.")
        lines = training.tail(100).splitlines()
        for line in lines[shown:] or (["still at work"] if now - spoke > 5 else []):
            say(line.rstrip())
            spoke = now
        shown = len(lines)
        time.sleep(0.2)
    if training.popen.returncode != 0:
        raise StackError(f"peerwatch-detector train failed:\n{training.tail()}")


def start_detector(stack: Stack, place: Place, config: str, port: int) -> Server:
    """Start the detector and wait until it has read Prometheus for the first time."""
    path = stack.directory / "detector.yaml"
    path.write_text(config)
    url = f"http://127.0.0.1:{port}"
    process = stack.start(
        "detector",
        [place.python, "-m", "peerwatch_detector", "run", "--config", str(path)],
        environment=place.environment(),
        ready=f"{url}/-/ready",
    )
    return Server(url, process)
