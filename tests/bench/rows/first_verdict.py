"""How long after its start a detector has compared the nodes of its first job.

The program as a user starts it, on a real Prometheus that holds a quarter of an hour of a job of
64 nodes; once on a machine where nothing was ever compiled, and once more with what was kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.detector import LOOKBACK, TEN, fill
from bench.measurement import Goal, Measurement, alone
from detector.reading.servers import prometheus
from peerwatch_demo.stack.servers import Stack, free_ports
from peerwatch_detector.config import DetectorConfig

_NODES = 64
_VERDICT = "\npeerwatch_cycle_last_success_timestamp_seconds{"
_PAUSE_SECONDS = 0.05
_PATIENCE_SECONDS = 300.0
# What is compiled is kept by the process beside it, which ends after a verdict has come.
_COMPILED = "prepared seconds"


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield seconds from the start of the program until its exposition has a verdict."""
    with (
        tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as name,
        Stack(Path(name)) as stack,
    ):
        server = prometheus(stack, LOOKBACK)
        settings: dict[str, object] = {
            "prometheus": {"url": server.url},
            "metrics": {"enabled": list(TEN)},
        }
        config = DetectorConfig.model_validate(settings)
        fill(server.url, [config], _NODES, int(time.time()) - 5)
        cache = Path(name) / "cache"
        for what, goals in (("never compiled", (Goal(5),)), ("compiled before", ())):
            yield Measurement(
                f"detector, start to the first verdict, {what}",
                "s",
                _seconds(stack, settings, cache),
                goals=goals,
                nodes=_NODES,
            )


def _seconds(stack: Stack, settings: dict[str, object], cache: Path) -> float:
    (port,) = free_ports(1)
    path = stack.directory / f"detector-{port}.yaml"
    listen = {"address": "127.0.0.1", "port": port}
    path.write_text(yaml.safe_dump(settings | {"listen": listen}))
    began = time.perf_counter()
    process = stack.start(
        f"detector-{port}",
        [sys.executable, "-m", "peerwatch_detector", "run", "--config", str(path)],
        environment=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
    )
    log = stack.directory / "log" / f"detector-{port}.log"
    while not _has_verdict(port):
        if time.perf_counter() - began > _PATIENCE_SECONDS:
            raise RuntimeError(f"no verdict after {_PATIENCE_SECONDS:g} s: {log.read_text()}")
        time.sleep(_PAUSE_SECONDS)
    took = time.perf_counter() - began
    while _COMPILED not in log.read_text():
        if time.perf_counter() - began > _PATIENCE_SECONDS:
            raise RuntimeError(f"not compiled after {_PATIENCE_SECONDS:g} s: {log.read_text()}")
        time.sleep(_PAUSE_SECONDS)
    process.stop(10)
    return took


def _has_verdict(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return _VERDICT in answer.read().decode()
    except OSError:
        return False


if __name__ == "__main__":
    alone(measurements)
