"""What the detection costs, from frames in memory to findings and their exposition.

Synthetic samples of a job of so many nodes (``peerwatch_detector.bench.synthetic_job``); one node
may be at fault. Measured are a cold
call, all of the range at once, as after a start, and a steady cycle, the next 15 seconds; each in
a process of its own, so that its peak memory is known.

    PYTHONPATH=tests:exporter:detector python -m bench.evaluating --nodes 128,512,1500
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np

from bench.detector import TEN
from peerwatch_common.web.facts import WebFacts
from peerwatch_detector.bench.command import resident_mebibytes
from peerwatch_detector.bench.synthetic_job import (
    CYCLE,
    CYCLES,
    SECONDS,
    SyntheticJob,
    synthetic_frames,
)
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.base import Model
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading import ReadingStatistics
from peerwatch_detector.service.metrics import Exposition, Snapshot

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one size costs one method.

    Parameters
    ----------
    method, nodes, faulty, threads
        What was measured.
    cold, steady, rendering
        The first call, the median of the cycles after it, one rendering of the exposition; seconds
        of CPU, of all threads together.
    cold_wait, steady_wait
        The same on the clock.
    growth, peak
        MiB by which the cold call and the cycles raised the resident memory, and its highest value.
    findings
        How many stand at the end.
    """

    method: str
    nodes: int
    faulty: bool
    threads: int
    cold: float
    cold_wait: float
    steady: float
    steady_wait: float
    rendering: float
    growth: float
    peak: float
    findings: int


def measure(method: str, nodes: int, gpus: int, *, faulty: bool, threads: int, top: int) -> Cost:
    """Evaluate a job in this process, and print what takes the time if ``top`` lines are asked."""
    scheduling = {"detection_threads": threads}
    config = DetectorConfig.model_validate(
        {"method": method, "scheduling": scheduling} | _metrics(method)
    )
    bundle, _ = configured_bundle(config)
    metrics = config.detection_metrics()
    frames = synthetic_frames(nodes, gpus, config, faulty=faulty)
    _warm(config, bundle.models(config, metrics))
    job = SyntheticJob(config, bundle.models(config, metrics), frames)
    call = job.until(SECONDS)
    before = resident_mebibytes()
    cold, detection = _timed(call, top)
    steady = []
    for cycle in range(1, CYCLES + 1):
        earlier = detection
        call = job.until(SECONDS + cycle * CYCLE)
        seconds, detection = _timed(call, top if cycle == CYCLES else 0)
        steady.append(seconds)
    up = ReadingStatistics(up=True)
    shown = [Snapshot((published,), reading=up) for published in (earlier, detection)]
    exposition = Exposition(lambda: shown.pop(0), WebFacts())
    exposition.render(openmetrics=False)
    rendering, text = _timed(lambda: exposition.render(openmetrics=False), top)
    if nodes > 1 and b"peerwatch_fault_score" not in text:
        raise RuntimeError("The exposition has nothing of the job.")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    steady_cpu, steady_wait = np.median(steady, axis=0).tolist()
    return Cost(
        method,
        nodes,
        faulty,
        threads,
        *cold,
        steady_cpu,
        steady_wait,
        rendering[0],
        peak - before,
        peak,
        len(detection.findings),
    )


def _metrics(method: str) -> dict[str, object]:
    return {} if method == "minder" else {"metrics": {"enabled": list(TEN)}}


def _warm(config: DetectorConfig, models: dict[str, Model]) -> None:
    """Compile and load what is compiled, and fill the caches of a process."""
    frames = synthetic_frames(16, 1, config, faulty=True)
    job = SyntheticJob(config, models, frames)
    job.until(SECONDS)()
    job.until(SECONDS + CYCLE)()


def _timed(call: Callable[[], Result], top: int) -> tuple[tuple[float, float], Result]:
    """Return the seconds of CPU and of the clock that a call takes, and its result."""
    profile = cProfile.Profile() if top else None
    began, started = time.process_time(), time.perf_counter()
    result = profile.runcall(call) if profile else call()
    seconds = time.process_time() - began, time.perf_counter() - started
    if profile:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(top)
    return seconds, result


def table(costs: list[Cost]) -> str:
    """Return the results for people, in Markdown."""
    lines = [
        "| method | nodes | fault | threads | cold call, s of CPU | of the clock "
        "| steady, s of CPU | of the clock | rendering, s | MiB more | peak, MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {cost.method} | {cost.nodes} | {'yes' if cost.faulty else 'no'} | {cost.threads} | "
        f"{cost.cold:.2f} | {cost.cold_wait:.2f} | {cost.steady:.3f} | {cost.steady_wait:.3f} | "
        f"{cost.rendering:.3f} | {cost.growth:.0f} | {cost.peak:.0f} |"
        for cost in costs
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="128,512,1500", help="sizes (128,512,1500)")
    parser.add_argument("--methods", default="peerwatch,minder", help="(peerwatch,minder)")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of a node (1: one series a node)")
    parser.add_argument("--faulty", default="no,yes", help="with a faulty node: (no,yes)")
    parser.add_argument("--threads", default="1", help="scheduling.detection_threads (1)")
    parser.add_argument("--profile", type=int, default=0, help="lines of a profile, to stderr")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tasks = [
        (method, int(nodes), faulty == "yes", int(threads))
        for method in options.methods.split(",")
        for nodes in options.nodes.split(",")
        for faulty in options.faulty.split(",")
        for threads in options.threads.split(",")
    ]
    if options.here:
        method, nodes, faulty, threads = tasks[0]
        gpus, top = options.gpus, options.profile
        cost = measure(method, nodes, gpus, faulty=faulty, threads=threads, top=top)
        print(json.dumps([asdict(cost)]))
        return
    costs = [_apart(*task, options.gpus, options.profile) for task in tasks]
    print(json.dumps([asdict(cost) for cost in costs], indent=2) if options.json else table(costs))


def _apart(method: str, nodes: int, faulty: bool, threads: int, gpus: int, top: int) -> Cost:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "bench.evaluating", "--here", "--methods", method]
    command += ["--nodes", str(nodes), "--faulty", "yes" if faulty else "no"]
    command += ["--gpus", str(gpus), "--threads", str(threads), "--profile", str(top)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Cost(**json.loads(done.stdout)[0])


if __name__ == "__main__":
    main()
