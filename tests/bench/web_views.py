"""What the detector's views cost, and whether people who look at them slow its cycles.

    PYTHONPATH=tests:exporter:detector python -m bench.web_views [--nodes 1500] [--viewers 50]

A detector evaluates a synthetic job of so many nodes with eight GPUs each, of which one node is at
fault, with the default settings; its reader answers out of memory. Every view is asked of its HTTP
server: once as the first to open it after a cycle, and then as another who looks. Prometheus is
stood in for by answers of no delay, so that the server's own time is measured.

Then viewers, in a process of their own, reload the job's view and the incident's every ten seconds
each, as an open view does, while cycles are timed; cycles with viewers and without take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np

from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.security import SecurityFile
from peerwatch_detector.bench.synthetic_job import CYCLE, JOB, SECONDS, START, synthetic_frames
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.frame import JobFrame, Series
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading import Block, Grid, Reading, ReadingStatistics, Selection, promql
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.reading.transport.envelope import Annotations
from peerwatch_detector.reading.transport.request import RangeResult
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.incident.address import Address
from peerwatch_detector.web.server import make_server

_GPUS, _LOOKS, _TURNS = 8, 9, 4
# An open view asks again after so many seconds (static/refresh.js).
_RELOAD_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class View:
    """One view.

    Parameters
    ----------
    path
        Its address.
    first_seconds, first_cpu
        On the clock, and of the CPU of server and asker, for who opens it first after a cycle.
    seconds
        Median on the clock of the others.
    size
        Bytes, uncompressed.
    """

    path: str
    first_seconds: float
    first_cpu: float
    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Measures:
    """What was measured; a cycle's seconds are medians on the clock, of ``cycles`` each.

    Parameters
    ----------
    nodes, viewers, answered
        Of the job, who looked, and how many views they got.
    views
        Each view.
    cycle_alone, cycle_watched
        Seconds of a cycle without and with viewers.
    cycle_cpu_alone, cycle_cpu_watched
        The same of the CPU of the thread that evaluates.
    cycles
        How many of each.
    """

    nodes: int
    viewers: int
    answered: int
    views: tuple[View, ...]
    cycle_alone: float
    cycle_watched: float
    cycle_cpu_alone: float
    cycle_cpu_watched: float
    cycles: int


class _Memory:
    """Answers for a server out of frames: the reader, and the history of views."""

    def __init__(self, frames: Mapping[str, JobFrame], config: DetectorConfig) -> None:
        self._frames, self._config = frames, config
        self.statistics = ReadingStatistics(up=True)
        self.second = SECONDS - 1
        self.nodes = next(iter(frames.values())).nodes

    def clock(self) -> float:
        return float(START + self.second)

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        discovery = self._config.discovery
        now = self.clock() if at is None else at
        labels = {promql.running_jobs(discovery.job_info): {"job_id": JOB}}
        labels[promql.present_nodes(discovery.presence)] = {}
        if query not in labels:
            return []
        return [_one({**labels[query], "node": node}, now) for node in self.nodes]

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = 0.0,
    ) -> list[Reading]:
        return [
            Reading(each, RangeResult(self._block(each, grid), _NONE, 0), "query")
            for each in selections
        ]

    def _block(self, selection: Selection, grid: Grid) -> Block:
        frame = self._frames.get(selection.metric)
        if frame is None:
            return Block(grid, (), np.empty((0, grid.steps), np.float32), 0)
        rows = frame.values if frame.gpu_values is None else frame.gpu_values
        rows = rows.reshape(-1, rows.shape[-1])
        keys = tuple((node, gpu) for node in frame.nodes for gpu in (frame.gpus or ("",)))
        values = np.full((len(keys), grid.steps), np.nan, np.float32)
        first = grid.start // 1000 - START
        left, right = max(first, 0), min(first + grid.steps, self.second + 1, rows.shape[1])
        if right > left:
            values[:, left - first : right - first] = rows[:, left:right]
        return Block(grid, keys, values, values.size)

    def at(self, queries: Mapping[str, str], time: float) -> Answers:
        return {name: [] for name in queries}

    def over(
        self,
        queries: Mapping[str, str],
        start: float,
        end: float,
        step: float,
    ) -> Answers:
        return {name: [] for name in queries}


_NONE = Annotations()


def _one(labels: dict[str, str], time: float) -> Series:
    return Series(labels, np.array([time]), np.array([1.0]))


def measure(nodes: int, viewers: int) -> Measures:
    """Measure views and cycles of one job of so many nodes."""
    config = DetectorConfig.model_validate({"listen": {"port": 0}})
    memory = _Memory(synthetic_frames(nodes, _GPUS, config, faulty=True), config)
    bundle, _ = configured_bundle(config)
    detector = Detector(config, memory, bundle, memory.clock)
    facts = WebFacts()
    server = make_server(detector, SecurityFile(None, facts), facts, memory)
    server.start()
    try:
        detector.cycle()
        base = f"http://127.0.0.1:{server.port}"
        memory.second += CYCLE
        detector.cycle()
        findings = detector.snapshot.detections[0].findings
        if not findings:
            raise RuntimeError("The synthetic fault was not found: its views would be too simple.")
        incident = f"/incidents/{Address(JOB, int(findings[0].since)).when}/{JOB}"
        paths = ["/", f"/jobs/{JOB}", f"/jobs/{JOB}?nodes=all", f"/nodes/{findings[0].node}"]
        paths += [incident, "/incidents", "/actions", "/reliability"]
        views = tuple(_view(base, path) for path in paths)
        turns = [
            (watched, *_cycles(detector, memory, base, [paths[1], incident], viewers * watched))
            for watched in (False, True) * _TURNS
        ]
    finally:
        server.stop()
    alone = [turn for turn in turns if not turn[0]]
    with_viewers = [turn for turn in turns if turn[0]]
    return Measures(
        nodes,
        viewers,
        sum(turn[3] for turn in with_viewers),
        views,
        statistics.median(turn[1] for turn in alone),
        statistics.median(turn[1] for turn in with_viewers),
        statistics.median(turn[2] for turn in alone),
        statistics.median(turn[2] for turn in with_viewers),
        _TURNS,
    )


def _view(base: str, path: str) -> View:
    cpu = time.process_time()
    first, size = load_view(base + path)
    cpu = time.process_time() - cpu
    others = statistics.median(load_view(base + path)[0] for _ in range(_LOOKS))
    return View(path, first, cpu, others, size)


def load_view(address: str) -> tuple[float, int]:
    """Return the seconds until a view is there, and its bytes."""
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        size = len(answer.read())
    return time.perf_counter() - began, size


def _cycles(
    detector: Detector, memory: _Memory, base: str, paths: Sequence[str], count: int
) -> tuple[float, float, int]:
    """Return seconds of a cycle on the clock and of CPU, and the views that viewers got."""
    with viewers([base + path for path in paths], count) as views:
        memory.second += CYCLE if memory.second + CYCLE < SECONDS + 8 * CYCLE else 0
        began, cpu = time.perf_counter(), time.thread_time()
        # The same fifteen seconds several times: a cycle of so many samples, whatever its number.
        detector.cycle()
        seconds, cpu = time.perf_counter() - began, time.thread_time() - cpu
    return seconds, cpu, views()


@contextmanager
def viewers(addresses: Sequence[str], count: int) -> Iterator[Callable[[], int]]:
    """Let so many people look while the block lasts; yields how many views they got, once it ended.

    Each has one of the addresses open.
    """
    if not count:
        yield lambda: 0
        return
    command = [sys.executable, "-c", _VIEWERS, json.dumps(addresses), str(count)]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    answered: list[int] = []
    try:
        assert watching.stdout is not None
        watching.stdout.readline()
        yield lambda: answered[0]
    finally:
        out, _ = watching.communicate("\n", timeout=60)
        answered.append(int(out.split()[-1]))


# Spread over the ten seconds, as people open their views at different times.
_VIEWERS = f"""
import json, sys, threading, time, urllib.request
addresses, viewers = json.loads(sys.argv[1]), int(sys.argv[2])
end, got = threading.Event(), []
def view(number):
    time.sleep({_RELOAD_SECONDS} * number / viewers)
    while not end.is_set():
        with urllib.request.urlopen(addresses[number % len(addresses)]) as answer:
            got.append(len(answer.read()))
        end.wait({_RELOAD_SECONDS})
for number in range(viewers):
    threading.Thread(target=view, args=(number,), daemon=True).start()
while len(got) < 5:
    time.sleep(0.05)
print("watching", flush=True)
sys.stdin.readline()
end.set()
print(len(got))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1500)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    found = measure(options.nodes, options.viewers)
    if options.json:
        print(json.dumps(asdict(found)))
        return
    print(f"{'view':60} {'first':>9} {'its CPU':>9} {'others':>9} {'size':>9}")
    for view in found.views:
        seconds = (view.first_seconds, view.first_cpu, view.seconds)
        times = " ".join(f"{1000 * each:6.0f} ms" for each in seconds)
        print(f"{view.path:60} {times} {view.size / 1000:6.0f} kB")
    print(
        f"cycle of {found.nodes} nodes: {found.cycle_alone:.2f} s alone, {found.cycle_watched:.2f} "
        f"s with {found.viewers} viewers ({found.answered} views); CPU of the cycle "
        f"{found.cycle_cpu_alone:.2f} s and {found.cycle_cpu_watched:.2f} s"
    )


if __name__ == "__main__":
    main()
