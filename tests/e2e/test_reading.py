"""All APIs give the same frame: a real Prometheus and a real VictoriaMetrics.

The series have whatever series have in the field; what the frame must hold is computed from the
written samples by slow obvious code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bench.reading import measure, table
from detector.reading.naive_grid import naive_rates, naive_steps
from detector.reading.remote_write import STALE, Written, write
from detector.reading.servers import make_visible, prometheus, victoria_metrics
from detector.reading.without_numba import read_without_numba
from peerwatch_demo.stack.servers import Stack
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.reading import (
    Follower,
    Grid,
    GridReader,
    Matcher,
    ReadingSettings,
    Selection,
)

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("plays-3")]

JOB = 'pre"train\\17'
ODD_NODE = 'o"dd\\nöde'
SECONDS = 300
AGE = 5000
SETTINGS = {"timeout_seconds": 60.0, "max_age_seconds": AGE / 1000}
OF_JOB = (Matcher("job_id", "=", JOB),)
LEVEL = Selection("level", "job_node:level:ratio", OF_JOB)
GPU_LEVEL = Selection("gpu_level", "job_gpu:level:ratio", OF_JOB)
RATE = Selection("rate", "node_bytes_total", OF_JOB, rate_seconds=5)
APIS = {"prometheus": ["remote_read", "query", "query_range"]}
APIS["victoria-metrics"] = ["export", "query", "query_range"]

Samples = list[tuple[int, float]]


@dataclass
class World:
    """Servers, and what was written to both."""

    urls: dict[str, str]
    base: int
    level: dict[str, Samples]
    second: Samples
    gpu_level: dict[tuple[str, str], Samples]
    counters: dict[str, Samples]

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.level, "node-nobody")

    def grid(self, start: int = 0, end: int = SECONDS) -> Grid:
        return Grid.of_seconds(self.base + start, self.base + end)


def scraped(base: int, rng: np.random.Generator, first: int = 0, last: int = SECONDS) -> Samples:
    """Return samples once a second, at a phase of their own, with some jitter."""
    phase = int(rng.integers(1, 999))
    jitter = rng.integers(-40, 40, last - first) * (rng.random(last - first) < 0.2)
    values = rng.normal(50, 20, last - first)
    values[::7] = np.round(values[::7], 2)
    return [
        ((base + second) * 1000 + phase + int(shift), float(value))
        for second, shift, value in zip(range(first, last), jitter, values, strict=True)
    ]


def without(samples: Samples, base: int, first: int, last: int) -> Samples:
    return [sample for sample in samples if not first <= sample[0] / 1000 - base < last]


def make_level(base: int, rng: np.random.Generator) -> dict[str, Samples]:
    level = {f"node-{letter}": scraped(base, rng) for letter in "abcdefgij"}
    # Missed scrapes: three seconds, then twelve.
    level["node-b"] = without(without(level["node-b"], base, 50, 53), base, 100, 112)
    # A target that went away for twenty seconds: Prometheus marks the end.
    gone = without(level["node-c"], base, 60, 80)
    last = max(when for when, _ in gone if when < (base + 60) * 1000)
    level["node-c"] = sorted([*gone, (last + 1000, STALE)])
    for place, value in enumerate([math.inf, -math.inf, -0.0, 0.0, -1.5e-7, 12345678.875]):
        level["node-d"][40 + 3 * place] = (level["node-d"][40 + 3 * place][0], value)
    # What an exporter says that divides by zero.
    for place in (70, 71, 90):
        level["node-d"][place] = (level["node-d"][place][0], math.nan)
    level["node-e"] = scraped(base, rng, 240)
    level["node-f"] = scraped(base, rng, 0, 90)
    # On whole seconds, exactly as far apart as a sample may be old, and 1 ms more.
    times = [0, 5000, 10000, 15001, 20002, 26002, 30000, 36001]
    level["node-h"] = [(base * 1000 + when, when / 7) for when in times]
    level[ODD_NODE] = scraped(base, rng)
    return level


def make_counter(base: int, rng: np.random.Generator, resets: tuple[int, ...]) -> Samples:
    total, found = 3e14, []
    for second, (when, _) in enumerate(scraped(base, rng)):
        total = 0.0 if second in resets else total + float(rng.integers(0, 10**10))
        found.append((when, total))
    return found


def labelled(name: str, samples: Samples, **labels: str) -> Written:
    times, values = zip(*samples, strict=True)
    return Written(
        {"__name__": name, "job_id": JOB, **labels},
        np.array(times, np.int64),
        np.array(values, np.float64),
    )


def written(world: World) -> Iterator[Written]:
    for node, samples in world.level.items():
        replica = {"replica": "1"} if node == "node-g" else {}
        yield labelled(LEVEL.series, samples, node=node, **replica)
    yield labelled(LEVEL.series, world.second, node="node-g", replica="2")
    yield labelled(LEVEL.series, world.second, instance="of no node")
    yield Written(
        {"__name__": LEVEL.series, "job_id": "another", "node": "node-a"},
        np.array([world.base * 1000], np.int64),
        np.array([1e9]),
    )
    for (node, gpu), samples in world.gpu_level.items():
        yield labelled(GPU_LEVEL.series, samples, node=node, gpu=gpu)
    for node, samples in world.counters.items():
        yield labelled(RATE.series, samples, node=node)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base, rng = int(time.time()) - 1200, np.random.default_rng(17)
    level = make_level(base, rng)
    second = scraped(base, rng)
    level["node-g"] = without(level["node-g"], base, 120, 140)
    gpus = {
        (node, str(gpu)): scraped(base, rng)
        for node in ("node-a", "node-b")
        for gpu in (0, 1, 2, 10)
    }
    del gpus["node-b", "2"]
    counters = {
        "node-a": make_counter(base, rng, ()),
        "node-b": make_counter(base, rng, (70, 71, 200)),
        "node-c": without(make_counter(base, rng, (104,)), base, 100, 108),
        "node-d": make_counter(base, rng, ())[150:],
    }
    found = World({}, base, level, second, gpus, counters)
    with Stack(tmp_path_factory.mktemp("reading")) as stack:
        servers = {"prometheus": prometheus(stack), "victoria-metrics": victoria_metrics(stack)}
        for name, server in servers.items():
            write(server.url, written(found))
            found.urls[name] = server.url
        make_visible(servers["victoria-metrics"])
        yield found


def frame(world: World, server: str, selection: Selection, grid: Grid, **more: object) -> JobFrame:
    settings = ReadingSettings(world.urls[server], **{**SETTINGS, **more})
    with GridReader(settings) as reader:
        (reading,) = reader.read([selection], grid, world.nodes)
        return reading.result().block.frame(JOB, selection.metric, world.nodes)


def expected_level(world: World, grid: Grid, server: str = "prometheus") -> list[list[float]]:
    """Return what the steps must hold; to VictoriaMetrics every NaN is the end of a series."""
    is_end = is_stale if server == "prometheus" else math.isnan
    rows = []
    for node in world.nodes:
        samples = [sample for sample in world.level.get(node, []) if not is_end(sample[1])]
        row = naive_steps(samples, grid, AGE)
        if node == "node-g":
            other = naive_steps(world.second, grid, AGE)
            row = [b if math.isnan(a) else a for a, b in zip(row, other, strict=True)]
        rows.append(row)
    return rows


def is_stale(value: float) -> bool:
    return np.float64(value).view(np.uint64) == np.float64(STALE).view(np.uint64)


both_servers = pytest.mark.parametrize(
    ("server", "api"), [(server, api) for server, apis in APIS.items() for api in apis]
)


@both_servers
def test_a_frame_holds_what_was_written(world: World, server: str, api: str) -> None:
    found = frame(world, server, LEVEL, world.grid(), api=api)
    assert world.nodes == found.nodes
    np.testing.assert_array_equal(world.grid().times, found.times)
    expected = np.float32(expected_level(world, world.grid(), server))
    np.testing.assert_array_equal(expected, found.values)


@both_servers
def test_a_frame_per_gpu_holds_what_was_written(world: World, server: str, api: str) -> None:
    found = frame(world, server, GPU_LEVEL, world.grid(), api=api)
    assert ("0", "1", "2", "10") == found.gpus
    assert found.gpu_values is not None
    for node in ("node-a", "node-b", "node-c"):
        for column, gpu in enumerate(found.gpus):
            samples = world.gpu_level.get((node, gpu), [])
            np.testing.assert_array_equal(
                np.float32(naive_steps(samples, world.grid(), AGE)),
                found.gpu_values[world.nodes.index(node), column],
            )


@both_servers
def test_rates_of_counters_survive_resets_and_gaps(world: World, server: str, api: str) -> None:
    grid = world.grid(20)
    found = frame(world, server, RATE, grid, api=api)
    for node, samples in world.counters.items():
        np.testing.assert_array_equal(
            np.float32(naive_rates(samples, grid, AGE, 5)), found.values[world.nodes.index(node)]
        )
    assert (found.values[np.isfinite(found.values)] >= 0).all()


@pytest.mark.parametrize("server", APIS)
@pytest.mark.parametrize("api", ["query", "query_range"])
@pytest.mark.parametrize("selection", [LEVEL, RATE], ids=["level", "rate"])
def test_without_compiled_code_a_frame_is_the_same(
    world: World, server: str, api: str, selection: Selection
) -> None:
    grid = world.grid(20)
    expected = frame(world, server, selection, grid, api=api)
    settings = {"url": world.urls[server], "api": api, **SETTINGS}
    used, rows, _ = read_without_numba("missing", settings, selection, grid, world.nodes)
    assert api == used
    np.testing.assert_allclose([rows[node] for node in world.nodes], expected.values, rtol=1e-6)


@pytest.mark.parametrize("server", APIS)
@pytest.mark.parametrize("step", [0.01, 0.1, 0.5, 10.0])
def test_other_steps_are_the_same_in_every_way(world: World, server: str, step: float) -> None:
    end = world.base // 60 * 60 + 120
    grid = Grid.of_seconds(end - 60, end, step)
    frames = [frame(world, server, LEVEL, grid, api=api).values for api in APIS[server]]
    age = max(AGE, round(1500 * step))
    samples = [sample for sample in world.level["node-a"] if not is_stale(sample[1])]
    row = world.nodes.index("node-a")
    np.testing.assert_array_equal(np.float32(naive_steps(samples, grid, age)), frames[0][row])
    for other in frames[1:]:
        np.testing.assert_array_equal(frames[0], other)


@pytest.mark.parametrize("server", APIS)
def test_the_way_is_found_by_asking_the_server(world: World, server: str) -> None:
    reader = GridReader(ReadingSettings(world.urls[server], increment_seconds=60))
    expression = Selection("sum", "", expression=f"max by (node) ({LEVEL.selector})")
    (long,) = reader.read([LEVEL], world.grid(), world.nodes)
    (short,) = reader.read([LEVEL], world.grid(250), world.nodes)
    (evaluated,) = reader.read([expression], world.grid(200, 210), world.nodes)
    reader.close()
    assert [APIS[server][0], "query", "query_range"] == [long.api, short.api, evaluated.api]
    assert len(world.level) == len(long.result().block.keys)
    assert (1, 1) == (long.result().block.duplicates, long.result().block.unnamed)
    assert reader.statistics.up
    assert {} == reader.statistics.errors
    assert np.isfinite(evaluated.result().block.frame(JOB, "sum", ["node-a"]).values).all()


@pytest.mark.parametrize("server", APIS)
def test_following_gives_what_one_read_gives(world: World, server: str) -> None:
    settings = ReadingSettings(world.urls[server], **SETTINGS)
    reader = GridReader(settings)
    follower = Follower(JOB, reader, [LEVEL, RATE], 200, settings)
    for until in (210, 217, 240, 240, 262):
        errors = follower.update(world.nodes, world.base + until + 2.7)
        assert {"level": None, "rate": None} == errors
    reader.close()
    grid = world.grid(62, 262)
    for selection in (LEVEL, RATE):
        whole = frame(world, server, selection, grid, api="query")
        found = follower.frame(selection.metric, world.nodes, world.base + 62, world.base + 262)
        np.testing.assert_array_equal(whole.times, found.times)
        np.testing.assert_array_equal(whole.values, found.values)


@pytest.mark.parametrize("server", APIS)
def test_samples_that_come_late_are_read_with_the_next(
    world: World, tmp_path: Path, server: str
) -> None:
    base, rng = world.base, np.random.default_rng(3)
    late = scraped(base, rng)
    with Stack(tmp_path) as stack:
        start = {"prometheus": prometheus, "victoria-metrics": victoria_metrics}[server]
        running = start(stack)
        settings = ReadingSettings(running.url, **SETTINGS)
        reader = GridReader(settings)
        follower = Follower(JOB, reader, [LEVEL], 200, settings)
        for until, written_from, written_to in ((250, 150, 246), (256, 246, 300)):
            part = late[written_from:written_to]
            write(running.url, [labelled(LEVEL.series, part, node="node-l")])
            if server == "victoria-metrics":
                make_visible(running)
            follower.update(["node-l"], base + until + 2)
        reader.close()
    found = follower.frame("level", ["node-l"], base + 205, base + 256).values[0]
    np.testing.assert_array_equal(np.float32(naive_steps(late, world.grid(205, 256), AGE)), found)


@pytest.mark.parametrize("api", ["query", "query_range"])
def test_what_a_server_refuses_as_too_much_is_read_in_parts(
    world: World, tmp_path: Path, api: str
) -> None:
    with Stack(tmp_path) as stack:
        small = prometheus(stack, "--query.max-samples=1500")
        write(small.url, written(world))
        settings = ReadingSettings(small.url, api=api, **SETTINGS)  # type: ignore[arg-type]
        reader = GridReader(settings)
        (reading,) = reader.read([LEVEL], world.grid(), world.nodes)
        reader.close()
    values = reading.result().block.frame(JOB, "level", world.nodes).values
    np.testing.assert_array_equal(np.float32(expected_level(world, world.grid())), values)
    assert reader.statistics.splits > 0
    assert {"refused": reader.statistics.splits} == reader.statistics.errors


@pytest.mark.parametrize("server", APIS)
def test_more_steps_than_a_server_allows_are_read_in_parts(world: World, server: str) -> None:
    grid = Grid.of_seconds(world.base, world.base + SECONDS, 0.008)
    narrow = Selection("level", LEVEL.series, (*OF_JOB, Matcher("node", "=", "node-a")))
    whole = frame(world, server, narrow, grid, api="query")
    # Prometheus takes 11,000 points, VictoriaMetrics 30,000.
    for most in (11_000, 40_000):
        found = frame(world, server, narrow, grid, api="query_range", max_points=most)
        np.testing.assert_array_equal(whole.values, found.values)


def test_a_wrong_selector_is_refused_at_once_and_says_why(world: World) -> None:
    settings = ReadingSettings(world.urls["prometheus"], api="query")
    reader = GridReader(settings)
    wrong = Selection("level", "level", (Matcher("node", "=~", "("),))
    (reading,) = reader.read([wrong], world.grid(), world.nodes)
    reader.close()
    with pytest.raises(ReadError, match=r"answered 400: .*missing closing \)") as caught:
        reading.result()
    assert "http_4xx" == caught.value.reason
    assert (1, 0) == (reader.statistics.requests, reader.statistics.splits)


def test_the_benchmark_reads_what_it_fills(tmp_path: Path) -> None:
    rows = measure(tmp_path, nodes=3, metrics=2, seconds=40, usual=True)
    apis = ["requests + json, gzip", "remote_read", "query", "query_range"]
    apis += ["remote_read, bytes thrown away", "15 s of new samples"]
    assert [(api, 3) for api in apis] == [(row.api, row.nodes) for row in rows]
    assert len(rows) + 2 == len(table(rows).splitlines())
