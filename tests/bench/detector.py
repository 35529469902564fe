"""From Prometheus to a verdict: what a whole call and a whole cycle of the detector cost.

    python -m bench.detector [--nodes 1500] [--methods minder,peerwatch]
    python -m bench.detector --scaling [--picture FILE]

A real Prometheus holds the recorded series of a training job. A detector in a process of its own
finds the job, reads a quarter of an hour, evaluates it (the cold call), and then goes on in
cycles of 15 s. --scaling does that for 128 to 12,500 nodes and prints how the cost grows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.growth import draw, exponent
from detector.reading.remote_write import Written, write
from detector.reading.servers import prometheus
from peerwatch_demo.stack.servers import Stack
from peerwatch_detector.bench.synthetic_job import CYCLE, CYCLES, JOB, START, synthetic_frames
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.frame import JobFrame

# What method peerwatch compares here.
TEN = (
    "pfc_tx_rate",
    "cpu_usage",
    "gpu_duty_cycle",
    "gpu_power",
    "gpu_tensor_activity",
    "gpu_graphics_activity",
    "nvlink_bandwidth",
    "pcie_bandwidth",
    "tcp_rdma_throughput",
    "memory_usage",
)
SIZES = (128, 512, 1500, 4096, 12_500)
# Discovery asks for the present, and filling a server takes minutes.
LOOKBACK = "--query.lookback-delta=2h"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one size costs one method.

    Parameters
    ----------
    method, nodes
        What was measured.
    idle
        Resident MiB of a detector that is ready and has no job yet.
    ready
        Wall seconds from the start of the process until it could ask its first query.
    loading
        Wall seconds in which the compiled code is loaded, before the first job.
    cold, cold_cpu
        The first call, from the discovery of the job to the published findings: wall and CPU
        seconds.
    cycle, server
        CPU seconds of one later cycle, the median: of the detector and of Prometheus.
    resident
        MiB after all cycles.
    findings
        How many stand at the end.
    """

    method: str
    nodes: int
    idle: float
    ready: float
    loading: float
    cold: float
    cold_cpu: float
    cycle: float
    server: float
    resident: float
    findings: int


def config_of(method: str, url: str) -> DetectorConfig:
    """Return the configuration: ten metrics for method peerwatch, its seven for minder."""
    settings: dict[str, object] = {
        "method": method,
        # The sizes are those of one job; a person would raise this only for the largest.
        "prometheus": {"url": url, "timeout_seconds": 60.0, "reading": {"deadline_seconds": 120.0}},
    }
    if method != "minder":
        settings["metrics"] = {"enabled": list(TEN)}
    return DetectorConfig.model_validate(settings)


def series(frames: Mapping[str, JobFrame], names: Mapping[str, str], end: int) -> Iterator[Written]:
    """Return what the recording rules would have written of these frames until ``end``."""
    rng = np.random.default_rng(1)
    for metric, frame in frames.items():
        # Every node is scraped at a moment of its own within the second.
        phases = rng.integers(50, 950, len(frame.nodes))
        shift = end - START - len(frame.times) + 1
        times = ((frame.times + shift) * 1000).astype(np.int64)
        for node, phase, values in zip(frame.nodes, phases, frame.values, strict=True):
            kept = np.isfinite(values)
            labels = {"__name__": names[metric], "cluster": "east", "job_id": JOB, "node": node}
            yield Written(labels, times[kept] - int(phase), values[kept].astype(np.float64))


def present(nodes: Sequence[str], discovery: Sequence[str], end: int) -> Iterator[Written]:
    """Return the series that tell which nodes there are, and for which job they work."""
    now = np.array([end * 1000])
    for name in discovery:
        for node in nodes:
            labels = {"__name__": name, "cluster": "east", "job_id": JOB, "node": node}
            yield Written(labels, now, np.ones(1))


def fill(url: str, configs: Sequence[DetectorConfig], nodes: int, end: int) -> None:
    """Write into a server what any of some detectors reads of a job that runs at ``end``."""
    metrics = {metric.name: metric for config in configs for metric in config.detection_metrics()}
    names: tuple[str, ...] = ()
    for config in configs:
        frames = synthetic_frames(nodes, 1, config, faulty=False)
        frames = {name: frames[name] for name in frames if name in metrics}
        recorded = {name: metrics.pop(name).recorded for name in frames}
        write(url, series(frames, recorded, end))
        names = next(iter(frames.values())).nodes if frames else names
    discovery = configs[0].discovery
    write(url, present(names, (discovery.job_info, discovery.presence), end))


def measure(directory: Path, nodes: int, methods: Sequence[str]) -> list[Cost]:
    """Fill a server and measure every method on it."""
    configs = [config_of(method, "http://127.0.0.1:1") for method in methods]
    with Stack(directory) as stack:
        server = prometheus(stack, LOOKBACK, "--query.timeout=10m", name=f"prometheus-{nodes}")
        end = int(time.time()) - 5
        fill(server.url, configs, nodes, end)
        return [_apart(method, nodes, server.url, end, server.process.pid) for method in methods]


def _apart(method: str, nodes: int, url: str, end: int, server: int) -> Cost:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "bench.detector_process", method, str(nodes), url]
    command += [str(end - CYCLE * CYCLES), str(CYCLE), str(CYCLES), str(server)]
    # Twice: the first process may have to compile.
    for _ in range(2):
        began = time.time()
        done = subprocess.run([*command, str(began)], check=True, stdout=subprocess.PIPE)
    return Cost(**json.loads(done.stdout))


def table(costs: Sequence[Cost]) -> str:
    """Return the results for people, in Markdown."""
    lines = [
        "| method | nodes | cold call, s | its CPU, s | a cycle, CPU s | of Prometheus, CPU s | "
        "ready, s | loading, s | idle, MiB | resident, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {cost.method} | {cost.nodes} | {cost.cold:.2f} | {cost.cold_cpu:.2f} | "
        f"{cost.cycle:.2f} | {cost.server:.2f} | {cost.ready:.1f} | {cost.loading:.1f} | "
        f"{cost.idle:.0f} | "
        f"{cost.resident:.0f} |"
        for cost in costs
    ]
    for method in dict.fromkeys(cost.method for cost in costs):
        rows = [cost for cost in costs if cost.method == method]
        if len(rows) > 2:
            sizes = [cost.nodes for cost in rows]
            cold, cycle = (
                exponent(sizes, [getattr(cost, name) for cost in rows])
                for name in ("cold", "cycle")
            )
            lines.append(
                f"\nMethod {method}: the cold call grows as nodes to the power of {cold:.2f}, "
                f"a cycle of {cycle:.2f}."
            )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1500, help="nodes of the job (1500)")
    parser.add_argument("--methods", default="minder,peerwatch", help="(minder,peerwatch)")
    parser.add_argument(
        "--scaling", action="store_true", help=f"all of {', '.join(map(str, SIZES))}"
    )
    parser.add_argument("--picture", type=Path, help="draw the growth of --scaling (.svg)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as directory:
        costs = [
            cost
            for nodes in (SIZES if options.scaling else (options.nodes,))
            for cost in measure(Path(directory), nodes, options.methods.split(","))
        ]
    print(json.dumps([asdict(cost) for cost in costs], indent=2) if options.json else table(costs))
    if options.picture and options.scaling:
        lines = {
            f"{what}, {method}": [
                (cost.nodes, getattr(cost, name)) for cost in costs if cost.method == method
            ]
            for method in options.methods.split(",")
            for what, name in (("cold call", "cold"), ("cycle", "cycle"))
        }
        options.picture.write_text(draw(lines))


if __name__ == "__main__":
    main()
