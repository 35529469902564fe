"""What one's own server and machine give: ``peerwatch-detector bench``.

Reading is timed on the series that the server has, evaluating on synthetic samples of the size
asked for; what that means for a cycle follows in proportion to the series.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from peerwatch_common.errors import ConfigError
from peerwatch_common.progress import Progress
from peerwatch_detector.bench.synthetic_job import (
    CYCLE,
    CYCLES,
    SECONDS,
    SyntheticJob,
    synthetic_frames,
)
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.threads import worthwhile
from peerwatch_detector.errors import BenchError, ReadError
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.reading import Grid, GridReader, Selection
from peerwatch_detector.reading.reader import reading_settings
from peerwatch_detector.reading.settings import ApiChoice

_APIS: tuple[ApiChoice, ...] = ("remote_read", "export", "query", "query_range")
# The first may open connections and fill the server's caches. Chosen: two more, of which the
# quicker counts; a large job's range takes seconds each time.
_RUNS = 3
# The first call, the cycles after it, and the reads: of the whole range by every API, of the newest
# seconds by one.
_MEASUREMENTS = 1 + CYCLES + len(_APIS) + 1


@dataclass(frozen=True, slots=True)
class ReadingCost:
    """What reading by one API cost; of some runs the quickest.

    Parameters
    ----------
    api
        How.
    span_seconds
        Length of the range.
    series, samples
        What came.
    seconds, cpu
        Wall time, and CPU time of this process.
    """

    api: str
    span_seconds: int
    series: int
    samples: int
    seconds: float
    cpu: float

    def scaled(self, series: int) -> float:
        """Return the seconds for so many series."""
        return self.seconds * series / self.series


@dataclass(frozen=True, slots=True)
class DetectionCost:
    """What evaluating synthetic samples cost.

    Parameters
    ----------
    nodes, metrics, method, threads
        What was evaluated, and in how many threads.
    cold, cycle
        Seconds of the first call and of a cycle after it; wall time.
    cold_cpu, cycle_cpu
        The same as CPU time of this process.
    resident
        Memory of this process afterwards, in MiB.
    """

    nodes: int
    metrics: int
    method: str
    threads: int
    cold: float
    cycle: float
    cold_cpu: float
    cycle_cpu: float
    resident: float


def run_bench(options: argparse.Namespace, config: DetectorConfig, bundle: Bundle) -> int:
    """Measure and print; a server that cannot be read costs only its part of the answer.

    Raises
    ------
    ConfigError
        If fewer nodes or metrics are asked for than can be evaluated, or more metrics than there
        are.
    """
    config = _narrowed(config, options)
    reading: list[ReadingCost] = []
    failure = ""
    with Progress(sys.stderr, _MEASUREMENTS, "measurement") as progress:
        detecting = measure_detection(config, bundle, options.nodes, progress.advance)
        try:
            reading = measure_reading(config, options.series, options.node_label, progress.advance)
        except (ReadError, BenchError) as error:
            failure = str(error)
    text = report(detecting, reading, config.prometheus.shown_url)
    if options.json:
        costs = {"detecting": asdict(detecting), "reading": [asdict(cost) for cost in reading]}
        text = json.dumps(costs | {"failure": failure}, indent=2)
    sys.stdout.write(text + "\n")
    if failure:
        sys.stderr.write(f"peerwatch-detector: reading was not measured: {failure}\n")
    return 1 if failure else 0


def _narrowed(config: DetectorConfig, options: argparse.Namespace) -> DetectorConfig:
    """Return the configuration with the first of its metrics only."""
    names = [metric.name for metric in config.detection_metrics()]
    asked = len(names) if options.metrics is None else options.metrics
    if not 1 <= asked <= len(names):
        raise ConfigError(
            [f"--metrics {asked} must be between 1 and the {len(names)} that are configured."]
        )
    if options.nodes < config.min_nodes:
        raise ConfigError(
            [
                f"--nodes {options.nodes} must be at least min_nodes {config.min_nodes}: "
                "fewer nodes are not compared."
            ]
        )
    metrics = config.metrics.model_copy(update={"enabled": names[:asked]})
    return config.model_copy(update={"metrics": metrics})


def measure_detection(
    config: DetectorConfig, bundle: Bundle, nodes: int, advance: Callable[[], None]
) -> DetectionCost:
    """Evaluate synthetic samples of so many nodes: the first call, and the cycles after it.

    ``advance`` is called after each.
    """
    models = bundle.models(config, config.detection_metrics())
    # Once for a small job, so that everything is compiled and loaded.
    small = SyntheticJob(config, models, synthetic_frames(16, 1, config, faulty=False))
    small.until(SECONDS)()
    small.until(SECONDS + CYCLE)()
    frames = synthetic_frames(nodes, 1, config, faulty=False)
    job = SyntheticJob(config, models, frames)
    seconds = []
    for cycle in range(CYCLES + 1):
        seconds.append(_seconds(job, SECONDS + cycle * CYCLE))
        advance()
    cold, *cycles = seconds
    usual = np.median(cycles, axis=0)
    return DetectionCost(
        nodes,
        len(frames),
        config.method,
        worthwhile(config.scheduling.detection_threads, frames.values()),
        cold[0],
        float(usual[0]),
        cold[1],
        float(usual[1]),
        resident_mebibytes(),
    )


def _seconds(job: SyntheticJob, second: int) -> tuple[float, float]:
    """Evaluate up to a second; return wall time and own CPU time."""
    detect = job.until(second)
    wall, own = time.perf_counter(), time.process_time()
    detect()
    return time.perf_counter() - wall, time.process_time() - own


def measure_reading(
    config: DetectorConfig, series: str | None, node_label: str, advance: Callable[[], None]
) -> list[ReadingCost]:
    """Read what the server has, by every API that it answers, and then the newest seconds only.

    Parameters
    ----------
    config
        Server, and metrics whose recorded series are read.
    series
        The name of other series to read in their place.
    node_label
        Their label that names a node.
    advance
        Called after each measurement.

    Raises
    ------
    ReadError
        If the server cannot be read.
    BenchError
        If it has no such series.
    """
    selections = [Selection(metric.name, metric.recorded) for metric in config.detection_metrics()]
    if series:
        selections = [Selection(series, series, node_label=node_label)]
    end = time.time() - config.prometheus.lag_seconds
    long, short = (Grid.of_seconds(end - span, end) for span in (SECONDS, CYCLE))
    asked = [(api, long) for api in _APIS] + [("auto", short)]
    costs = []
    for api, grid in asked:
        costs.append(_read(config, api, selections, grid))
        advance()
    found = [cost for cost in costs if cost is not None and cost.series]
    if not found:
        names = ", ".join(selection.series for selection in selections[:3])
        raise BenchError(
            f"{config.prometheus.shown_url} has none of the series {names}, ...; give "
            "--series NAME (and --node-label LABEL) of any that it has.",
        )
    return found


def _read(
    config: DetectorConfig, api: ApiChoice, selections: Sequence[Selection], grid: Grid
) -> ReadingCost | None:
    """Read some selections a few times; None if the server does not have that API."""
    settings = replace(reading_settings(config.prometheus), api=api)
    best: ReadingCost | None = None
    with GridReader(settings) as reader:
        for _ in range(_RUNS):
            wall, own = time.perf_counter(), time.process_time()
            readings = reader.read(selections, grid)
            wall, own = time.perf_counter() - wall, time.process_time() - own
            errors = [
                reading.outcome for reading in readings if isinstance(reading.outcome, ReadError)
            ]
            if errors and errors[0].reason in {"http_4xx", "malformed"} and api != "query":
                return None
            blocks = [reading.result().block for reading in readings]
            count = sum(len(block.keys) + block.duplicates for block in blocks)
            samples = sum(block.samples for block in blocks)
            span = grid.steps * grid.step // 1000
            cost = ReadingCost(readings[0].api, span, count, samples, wall, own)
            best = cost if best is None or wall < best.seconds else best
    return best


def report(detecting: DetectionCost, reading: Sequence[ReadingCost], url: str) -> str:
    """Return the answer for people, in Markdown."""
    cores = len(os.sched_getaffinity(0))
    threads = "in one thread" if detecting.threads == 1 else f"in {detecting.threads} threads"
    series = detecting.nodes * detecting.metrics
    what = f"{detecting.nodes} nodes x {detecting.metrics} metrics"
    lines = [
        f"Evaluating synthetic samples of {what}, method {detecting.method}, "
        f"{threads} on {cores} cores:",
        "",
        "| | seconds | own CPU, s |",
        "|---|---|---|",
        f"| first call, {SECONDS} s | {detecting.cold:.2f} | {detecting.cold_cpu:.2f} |",
        f"| a cycle, {CYCLE} s more | {detecting.cycle:.3f} | {detecting.cycle_cpu:.3f} |",
        "",
        f"Memory of this process: {detecting.resident:.0f} MiB.",
    ]
    if not reading:
        return "\n".join(lines)
    lines += [
        "",
        f"Reading from {url}:",
        "",
        f"| api | range, s | series | samples | seconds | own CPU, s | for {series} series, s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {cost.api} | {cost.span_seconds} | {cost.series} | {cost.samples} | "
        f"{cost.seconds:.3f} | {cost.cpu:.3f} | {cost.scaled(series):.2f} |"
        for cost in reading
    ]
    long = [cost.scaled(series) for cost in reading if cost.span_seconds >= SECONDS]
    start = detecting.cold + min(long)
    cycle = detecting.cycle + reading[-1].scaled(series)
    lines += [
        "",
        f"A detector that starts needs about {start:.1f} s for such a job, and each cycle of "
        f"{CYCLE} s then {cycle:.2f} s, waiting for the server included: {cycle / CYCLE:.1%} of "
        "its time.",
    ]
    return "\n".join(lines)


def resident_mebibytes() -> float:
    """Return this process's memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
