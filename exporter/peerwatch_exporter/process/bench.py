"""What each source costs on this node: ``peerwatch-exporter bench``.

The real runner takes snapshots as it does in service, only that every collector runs every second;
what a collector that runs less often costs per second follows from its interval.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from peerwatch_common.web.compression import GzipCache
from peerwatch_exporter import __version__
from peerwatch_exporter.pages.endpoints import Endpoints
from peerwatch_exporter.schedule.runner import Runner
from peerwatch_exporter.schedule.worker_set import make_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.collector import Collector, Registration
    from peerwatch_exporter.process.assembly import Parts
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_HEADER = (
    "SOURCE",
    "PROCESS",
    "EVERY s",
    "RUNS",
    "CPU ms/run",
    "WALL ms med",
    "max",
    "SERIES",
    "ERRORS",
    "CPU ms/s",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one source costs; times in milliseconds.

    Parameters
    ----------
    name, process
        The source, and where it runs.
    interval_seconds
        How often it runs in service.
    runs
        How often it ran for this.
    cpu
        CPU time per run; of collectors in the driver process their part, by wall time, of what
        that process used.
    wall_median, wall_max
        Time from asking to answer.
    series
        Series it published last.
    errors
        Runs with something wrong.
    """

    name: str
    process: str
    interval_seconds: float
    runs: int
    cpu: float
    wall_median: float
    wall_max: float
    series: int = 0
    errors: int = 0

    @property
    def cpu_per_second(self) -> float:
        """CPU time per second in service, in milliseconds."""
        return self.cpu / self.interval_seconds


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All costs that were measured.

    Parameters
    ----------
    seconds
        How long was measured.
    collectors, endpoints
        What they cost each.
    page_bytes
        Sizes of the newest expositions by name.
    resident_bytes
        Memory by kind of process; shared pages count for each.
    """

    seconds: float
    collectors: Sequence[Cost]
    endpoints: Sequence[Cost]
    exposition_bytes: Mapping[str, int]
    resident_bytes: Mapping[str, int]

    @property
    def cpu_per_second(self) -> float:
        """Milliseconds of CPU per second, if both endpoints are scraped every second."""
        return sum(cost.cpu_per_second for cost in (*self.collectors, *self.endpoints))


@dataclass(slots=True)
class _Measured:
    """What was measured of one source, run by run; in milliseconds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    series: int = 0
    errors: int = 0

    def cost(self, name: str, process: str, interval_seconds: float, cpu: float | None) -> Cost:
        mean = statistics.fmean(self.cpu) if self.cpu else 0.0
        return Cost(
            name,
            process,
            interval_seconds,
            len(self.wall),
            mean if cpu is None else cpu,
            statistics.median(self.wall) if self.wall else 0.0,
            max(self.wall, default=0.0),
            self.series,
            self.errors,
        )


class _Timed:
    """A collector whose CPU time is taken, in the thread that runs it."""

    def __init__(self, collector: Collector, measured: _Measured) -> None:
        self._collector = collector
        self._seen = measured

    def collect(self) -> Iterable[Family]:
        before = time.thread_time()
        try:
            yield from self._collector.collect()
        finally:
            self._seen.cpu.append(1000 * (time.thread_time() - before))


def bench(parts: Parts, *, seconds: float, as_json: bool) -> str:
    """Measure for so many seconds and return a table, or JSON.

    Parameters
    ----------
    parts
        As the exporter is made of them.
    seconds
        How long; one run of every collector per second.
    as_json
        Whether a program reads it.
    """
    result = measure(parts, seconds=seconds)
    if not as_json:
        return table(result)
    answer = {
        "version": __version__,
        **asdict(result),
        "cpu_milliseconds_per_second": result.cpu_per_second,
    }
    return json.dumps(answer, indent=2) + "\n"


def measure(parts: Parts, *, seconds: float) -> BenchResult:
    """Take snapshots once a second and return what they cost."""
    measured: dict[str, _Measured] = defaultdict(_Measured)
    registered = {
        name: _timed(item, measured[name]) if item.process == "main" else item
        for name, item in parts.registered.items()
    }
    runner = Runner(
        make_workers(parts.config, parts.sources, registered, parts.driver),
        parts.sources,
        deadline_seconds=parts.config.deadline_seconds,
        version=__version__,
        history_seconds=parts.config.fast.history_seconds,
        mean_seconds=parts.config.mean_seconds,
    )
    endpoints: dict[str, _Measured] = defaultdict(_Measured)
    if parts.driver is not None:
        parts.driver.start()
    try:
        sizes = _run(runner, measured, endpoints, seconds)
        return _result(parts, runner, measured, endpoints, sizes, seconds)
    finally:
        runner.stop()
        if parts.driver is not None:
            parts.driver.stop()


def _timed(registration: Registration, measured: _Measured) -> Registration:
    def make(config: ExporterConfig, sources: Sources) -> Collector:
        return _Timed(registration.factory(config, sources), measured)

    return replace(registration, factory=make)


def _run(
    runner: Runner,
    measured: Mapping[str, _Measured],
    endpoints: Mapping[str, _Measured],
    seconds: float,
) -> dict[str, int]:
    """Tick once a second, note what came of it; return the sizes of the newest expositions."""
    source, gzip = Endpoints(runner), GzipCache()
    sizes: dict[str, int] = {}
    # The first snapshot opens files and starts the driver process: it is no sample.
    runner.tick(everybody=True)
    for item in measured.values():
        item.cpu.clear()
    start = time.monotonic()
    for second in range(1, round(seconds) + 1):
        time.sleep(max(0.0, start + second - time.monotonic()))
        before = _clocks()
        runner.tick(everybody=True)
        _record(endpoints["snapshot"], before)
        for status in runner.status():
            item = measured[status.name]
            item.wall.append(1000 * status.duration_seconds)
            item.series = status.series
            item.errors += status.error is not None
        _measure_endpoints(source, gzip, endpoints, sizes)
        if sys.stderr.isatty():
            sys.stderr.write(f"\rmeasuring: {second} of {seconds:.0f} s")
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    return sizes


def _measure_endpoints(
    source: Endpoints, gzip: GzipCache, endpoints: Mapping[str, _Measured], sizes: dict[str, int]
) -> None:
    before = _clocks()
    full = source.full(openmetrics=True, timeout=0)
    _record(endpoints["/metrics"], before)
    before = _clocks()
    compressed = gzip.compress(full)
    _record(endpoints["gzip of /metrics"], before)
    before = _clocks()
    fast = source.fast(openmetrics=True, scraper="bench", timeout=0)
    _record(endpoints["/metrics/fast"], before)
    sizes |= {
        "/metrics": len(full),
        "gzip of /metrics": len(compressed),
        "/metrics/fast": len(fast),
    }


def _clocks() -> tuple[float, float]:
    return time.thread_time(), time.perf_counter()


def _record(item: _Measured, before: tuple[float, float]) -> None:
    cpu, wall = _clocks()
    item.cpu.append(1000 * (cpu - before[0]))
    item.wall.append(1000 * (wall - before[1]))


def _result(
    parts: Parts,
    runner: Runner,
    measured: Mapping[str, _Measured],
    endpoints: Mapping[str, _Measured],
    sizes: Mapping[str, int],
    seconds: float,
) -> BenchResult:
    use = {item.process: item for item in parts.sources.own_processes.use()}
    there = [name for name in runner.names if parts.registered[name].process == "driver"]
    wall = sum(sum(measured[name].wall) for name in there)
    # One run more than was noted: the first.
    driver_cpu = 1000 * use["driver"].cpu_seconds / (seconds + 1) if "driver" in use else 0.0

    def cost(name: str) -> Cost:
        item, registration = measured[name], parts.registered[name]
        cpu = None
        if name in there:
            cpu = driver_cpu * sum(item.wall) / wall if wall else 0.0
        return item.cost(name, registration.process, registration.interval_seconds, cpu)

    return BenchResult(
        seconds=seconds,
        collectors=[cost(name) for name in runner.names],
        endpoints=[item.cost(name, "main", 1.0, None) for name, item in endpoints.items()],
        exposition_bytes=sizes,
        resident_bytes={name: item.resident_bytes for name, item in use.items()},
    )


def table(result: BenchResult) -> str:
    """Return the findings for a person; dearest first."""
    costs = sorted(result.collectors, key=lambda cost: -cost.cpu_per_second)
    rows = [_HEADER, *(_row(cost) for cost in (*costs, *result.endpoints))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = [_aligned(row, widths) for row in rows]
    lines.insert(1 + len(costs), "")
    sizes = ", ".join(f"{name} {size:,} bytes" for name, size in result.exposition_bytes.items())
    memory = {name: size / 2**20 for name, size in result.resident_bytes.items()}
    shares = ", ".join(f"{name} {size:.1f} MiB" for name, size in memory.items())
    series = sum(cost.series for cost in costs)
    lines += [
        "",
        f"answers: {sizes}; {series:,} series of collectors",
        f"memory:  {shares}; {sum(memory.values()):.1f} MiB in all, shared pages counted twice",
        f"in all:  {result.cpu_per_second:.2f} ms of CPU per second, with both endpoints scraped "
        "every second",
        "CPU of collectors in the driver process is that process' own, shared out by wall time.",
    ]
    return "\n".join(lines) + "\n"


def _row(cost: Cost) -> tuple[str, ...]:
    return (
        cost.name,
        cost.process,
        f"{cost.interval_seconds:g}",
        str(cost.runs),
        f"{cost.cpu:.3f}",
        f"{cost.wall_median:.3f}",
        f"{cost.wall_max:.3f}",
        str(cost.series),
        str(cost.errors),
        f"{cost.cpu_per_second:.3f}",
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    words = [f"{row[column]:<{widths[column]}}" for column in range(2)]
    numbers = [f"{row[column]:>{widths[column]}}" for column in range(2, len(row))]
    return "  ".join(words + numbers)
