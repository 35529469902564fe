"""How long it takes to read a job's range from a real Prometheus, next to the usual API.

    python -m bench.reading [--nodes 1500] [--metrics 10] [--seconds 900] [--large] [--json]

A Prometheus is filled with gauges and counters as nodes have them (a phase for every node, some
jitter, missed scrapes), then read by `requests` and `json` with a loop over the samples, as people
write it, and by every API of the detector. Jobs of 16 and 256 nodes show what a steady cycle costs
where many jobs are small. --large reads 12,500 nodes as well, without the usual API, which takes
minutes there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import requests
from numpy.typing import NDArray

from bench.processes import Usage, usage
from detector.reading.remote_write import Written, write
from detector.reading.servers import prometheus
from peerwatch_demo.stack.servers import Server, Stack
from peerwatch_detector.reading import (
    Follower,
    Grid,
    GridReader,
    Matcher,
    ReadingSettings,
    Selection,
)
from peerwatch_detector.reading.settings import ApiChoice
from peerwatch_detector.reading.transport.apis import REMOTE_READ
from peerwatch_detector.reading.transport.connection import Connection
from peerwatch_detector.reading.transport.protobuf import read_request

JOB = "pretrain-17"
LARGE = 12_500
SMALL = (16, 256)
# Before the range, so that its first steps have a sample, and so that it is not all there is.
_LEAD_SECONDS = 60
FLOOR = "remote_read, bytes thrown away"
_APIS: tuple[ApiChoice, ...] = ("remote_read", "query", "query_range")


@dataclass(frozen=True, slots=True)
class Row:
    """What one API cost; times in seconds, best of some runs."""

    api: str
    nodes: int
    seconds: float
    own_cpu: float
    server_cpu: float
    megabytes: float
    ratio: float


def series(nodes: int, metrics: int, seconds: int, end: int) -> Iterator[Written]:
    """Make up what an exporter on every node delivers, once a second until ``end``."""
    rng = np.random.default_rng(17)
    count = seconds + _LEAD_SECONDS
    whole = (end - count + np.arange(count)) * 1000
    for metric in range(metrics):
        for node in range(nodes):
            jitter = rng.integers(-40, 40, count) * (rng.random(count) < 0.04)
            times = whole + rng.integers(50, 950) + jitter
            kept = rng.random(count) > 0.003
            labels = {
                "__name__": f"bench_metric_{metric}",
                "cluster": "east",
                "instance": f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}:9400",
                "job": "peerwatch-exporter",
                "job_id": JOB,
                "node": f"gpu-node-{node:05d}",
            }
            yield Written(labels, times[kept], _values(metric, count, rng)[kept])


def _values(metric: int, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return three kinds of gauges and seven of counters, in turn."""
    kind = metric % 10
    if kind == 0:
        return rng.normal(0.9, 0.05, count).clip(0, 1)
    if kind == 1:
        return np.round(rng.normal(640, 25, count), 2)
    if kind == 2:
        return np.round(rng.normal(80, 3, count))
    per_second = float(10 ** (kind + 1))
    busy = rng.random(count) < (0.02 if kind == 3 else 1)
    return np.cumsum(np.rint(rng.normal(per_second, per_second / 10, count)) * busy)


def as_people_write_it(url: str, selections: Sequence[Selection], grid: Grid) -> int:
    """Read with requests and json, a Python object per sample; return the bytes of JSON."""
    nodes: dict[str, int] = {}
    total = 0
    with requests.Session() as session:
        for selection in selections:
            form = {
                "query": selection.selector,
                "start": grid.start / 1000,
                "end": grid.end / 1000,
                "step": 1,
            }
            response = session.post(f"{url}/api/v1/query_range", data=form, timeout=600)
            response.raise_for_status()
            result = response.json()["data"]["result"]
            values = np.full((len(result), grid.steps), np.nan, np.float32)
            for node_series in result:
                row = nodes.setdefault(node_series["metric"]["node"], len(nodes))
                for when, value in node_series["values"]:
                    values[row, round(when - grid.start / 1000)] = float(value)
            total += len(response.content)
    return total


def measure(directory: Path, nodes: int, metrics: int, seconds: int, *, usual: bool) -> list[Row]:
    """Fill a server and return what every API cost."""
    end = int(time.time()) - 5
    grid = Grid.of_seconds(end - seconds, end - 1)
    names = [f"gpu-node-{node:05d}" for node in range(nodes)]
    selections = [
        Selection(f"metric_{k}", f"bench_metric_{k}", (Matcher("job_id", "=", JOB),))
        for k in range(metrics)
    ]
    with Stack(directory) as stack:
        server = prometheus(stack, "--query.timeout=10m", name=f"prometheus-{nodes}")
        write(server.url, series(nodes, metrics, seconds, end))
        rows = []
        if usual:
            cost = _cost(
                server, lambda: as_people_write_it(server.url, selections, grid), repeats=1
            )
            rows.append(Row("requests + json, gzip", nodes, *cost, 1.0))
        apis = _APIS if usual else _APIS[:1]
        for api in apis:
            settings = ReadingSettings(
                server.url, api=api, timeout_seconds=600, deadline_seconds=600
            )
            with GridReader(settings) as reader:
                cost = _cost(server, lambda: _read(reader, selections, grid, names), repeats=4)
            ratio = rows[0].seconds / cost[0] if usual else float("nan")
            rows.append(Row(api, nodes, *cost, ratio))
        if usual:
            cost = _cost(server, lambda: _fetch(server.url, selections, grid), repeats=4)
            rows.append(Row(FLOOR, nodes, *cost, float("nan")))
        rows.append(_follow(server, selections, names, end))
    return rows


def _fetch(url: str, selections: Sequence[Selection], grid: Grid) -> int:
    """Fetch the bytes of a remote read, one request after the other, and throw them away."""
    settings = ReadingSettings(url, timeout_seconds=600, deadline_seconds=600)
    connection, total = Connection(settings), 0
    for selection in selections:
        matchers = (Matcher("__name__", "=", selection.series), *selection.matchers)
        content = read_request(matchers, grid.start, grid.end)
        response = connection.post("api/v1/read", content, REMOTE_READ, time.monotonic() + 600)
        buffer = memoryview(bytearray(1 << 16))
        while count := response.body.read_into(buffer):
            total += count
    connection.close()
    return total


def _read(
    reader: GridReader, selections: Sequence[Selection], grid: Grid, nodes: Sequence[str]
) -> int:
    before = reader.statistics.received_bytes
    for reading in reader.read(selections, grid, nodes):
        block = reading.result().block
        if len(block.keys) != len(nodes) or np.isnan(block.values).any():
            raise RuntimeError(f"{reading.selection.metric}: something is missing in the response.")
        block.frame(JOB, reading.selection.metric, nodes)
    return reader.statistics.received_bytes - before


def _follow(server: Server, selections: Sequence[Selection], nodes: Sequence[str], end: int) -> Row:
    """Measure a steady cycle: the last 15 seconds of all metrics into the rings."""
    settings = ReadingSettings(server.url, timeout_seconds=600, deadline_seconds=600)
    with GridReader(settings) as reader:
        follower = Follower(JOB, reader, selections, 60, settings)
        follower.update(nodes, end - 15)

        def step() -> int:
            before = reader.statistics.received_bytes
            follower.read_until = dict.fromkeys(follower.read_until, end - 17)
            for error in follower.update(nodes, end).values():
                if error is not None:
                    raise error
            return reader.statistics.received_bytes - before

        cost = _cost(server, step, repeats=4)
    return Row("15 s of new samples", len(nodes), *cost, float("nan"))


def _cost(
    server: Server, action: Callable[[], int], repeats: int
) -> tuple[float, float, float, float]:
    """Return wall time, own CPU and the server's CPU in seconds, and megabytes; the best run's.

    The first of several runs compiles and opens connections; it does not count.
    """
    runs = []
    for _ in range(repeats):
        before: Usage = usage(server.process.pid)
        began, own = time.perf_counter(), time.process_time()
        size = action()
        wall, own = time.perf_counter() - began, time.process_time() - own
        runs.append((wall, own, usage(server.process.pid).cpu_since(before), size / 1e6))
    return min(runs[1:] or runs)


def table(rows: Sequence[Row]) -> str:
    """Return the results for people, in Markdown; ratios are to the first row."""
    lines = [
        "| api | nodes | seconds | own CPU, s | server's CPU, s | MB | times faster |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "-" if np.isnan(row.ratio) else f"{row.ratio:.1f}"
        lines.append(
            f"| {row.api} | {row.nodes} | {row.seconds:.3f} | {row.own_cpu:.3f} | "
            f"{row.server_cpu:.3f} | {row.megabytes:.1f} | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1500, help="nodes of the job (1500)")
    parser.add_argument("--metrics", type=int, default=10, help="series of each node (10)")
    parser.add_argument("--seconds", type=int, default=900, help="length of the range (900)")
    parser.add_argument("--large", action="store_true", help=f"read {LARGE} nodes as well")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peerwatch-bench-") as directory:
        sizes = [*SMALL, options.nodes, *([LARGE] if options.large else [])]
        rows = [
            row
            for nodes in sizes
            for row in measure(
                Path(directory),
                nodes,
                options.metrics,
                options.seconds,
                usual=nodes == options.nodes,
            )
        ]
    print(json.dumps([asdict(row) for row in rows], indent=2) if options.json else table(rows))


if __name__ == "__main__":
    main()
