"""A detector with a whole fleet's jobs, some at fault, and a Prometheus that knows their past.

Samples and the past are made up, and the server answers at once, so that what is measured is the
detector's own. Each job has nodes of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bench.holding import MadeUpServer
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.security import SecurityFile
from peerwatch_common.web.server import HttpServer
from peerwatch_detector.bench.synthetic_job import CYCLE, START
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.diagnosis.root.algorithm.algorithm import find_root
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.live.root import LiveRoot
from peerwatch_detector.errors import ReadFailure
from peerwatch_detector.frame import Series
from peerwatch_detector.models.shipped import configured_bundle
from peerwatch_detector.reading import Block, Grid, Reading, Selection
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.service import prepare
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.server import make_server

# 200 jobs, 12,500 nodes in all.
LARGEST = "pretrain-large"
FLEET: Mapping[str, int] = {
    LARGEST: 1500,
    **{f"pretrain-{number:03d}": 512 for number in range(4)},
    **{f"finetune-{number:03d}": 128 for number in range(20)},
    **{f"evaluate-{number:03d}": 36 for number in range(174)},
    "evaluate-last": 128,
}
# As many as a view needs to have several of them; each makes the first call of 200 jobs longer.
_METRICS = (
    "cpu_usage",
    "gpu_duty_cycle",
    "gpu_power",
    "gpu_tensor_activity",
    "nvlink_bandwidth",
)
# Every so many jobs, the largest among them, one has a node at fault.
_FAULTY_EVERY = 10
_FAULTY_METRIC, _FAULTY_FROM = "gpu_tensor_activity", 400
_RANKS_PER_NODE = 8


class FleetServer(MadeUpServer):
    """Jobs with nodes of their own, of which every tenth has one whose tensor cores are slow.

    Parameters
    ----------
    config
        Whose metrics are read.
    jobs
        Nodes of each.
    """

    def __init__(self, config: DetectorConfig, jobs: Mapping[str, int]) -> None:
        super().__init__(config, sum(jobs.values()), 1)
        self.jobs: dict[str, tuple[str, ...]] = {}
        begin = 0
        for job_id, count in jobs.items():
            self.jobs[job_id] = self.names[begin : begin + count]
            begin += count
        faulty = list(self.jobs)[::_FAULTY_EVERY]
        self.faulty = {job_id: self.jobs[job_id][len(self.jobs[job_id]) // 2] for job_id in faulty}
        self._suffer = {node for job_id in faulty for node in self.jobs[job_id]}
        self.cpu = 0.0
        self.from_second = START + config.history_seconds - _FAULTY_FROM

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        """Make up the samples of a job's nodes; the time this takes is not the detector's."""
        began = time.thread_time()
        self._keys = dict.fromkeys(("node", "gpu"), tuple((node, "") for node in nodes))
        self._keys["gpu"] = tuple((node, "0") for node in nodes)
        found = super().read(selections, grid, nodes, deadline)
        self.cpu += time.thread_time() - began
        return found

    def _block(self, selection: Selection, grid: Grid) -> Block:
        block = super()._block(selection, grid)
        nodes = [node for node, _ in block.keys]
        if selection.metric == _FAULTY_METRIC and nodes and nodes[0] in self._suffer:
            late = np.arange(grid.steps) * grid.step + grid.start >= self.from_second * 1000
            # All wait for the faulty node.
            block.values[:, late] *= np.float32(0.85)
            rows = np.flatnonzero([node in self.faulty.values() for node in nodes])
            block.values[np.ix_(rows, np.flatnonzero(late))] *= np.float32(0.4)
        return block

    def _members(self) -> Mapping[str, Sequence[str]]:
        return self.jobs


class FleetInstants:
    """The jobs' own evidence, of which nothing is asked: what they fail of is given."""

    errors: Mapping[ReadFailure, int] = {}

    def read(self, queries: Mapping[str, str]) -> Answers:
        """Answer every query with nothing."""
        return {name: [] for name in queries}

    def close(self) -> None:
        """Nothing is under way."""


class FleetHistory:
    """The past of a fleet: 200 incidents, 200 responses, a month of books.

    Parameters
    ----------
    server
        Whose jobs they are of.
    """

    def __init__(self, server: FleetServer) -> None:
        self._server = server

    def at(self, queries: Mapping[str, str], time: float) -> Answers:
        """Answer by the names that the rooms give their queries."""
        jobs = self._server.jobs
        finding = {"metric": _FAULTY_METRIC, "method": "peerwatch", "severity": "critical"}
        past = [
            ({"job_id": job_id, "node": nodes[place % len(nodes)]}, time - 600.0 * (place + 1))
            for place, (job_id, nodes) in enumerate(jobs.items())
        ]
        said = {"summary": "Isolate the node and restart: GPU 3 fell off the bus", "result": "done"}
        known = {
            "since": [_series(at, **labels, **finding) for labels, at in past],
            "standing": [_series(1, **labels, **finding) for labels, _ in past[:20]],
            "roots": [_series(at, **labels, **said) for labels, at in past],
            "up": [_series(1)],
            "ended": [_series(at, **labels, **said, key=str(at)) for labels, at in past],
            "made": [_series(time)],
            "ettr": [_series(0.9, size_class=f"{size} GPUs", bound="") for size in range(12)],
            "lemons": [_series(1, **labels, reason="failed often") for labels, _ in past[:50]],
        }
        if "responding" in queries:
            # Of an incident only what is its job's: the server would have chosen.
            known = {name: found[:1] for name, found in known.items()}
        return {name: known.get(name, []) for name in queries}

    def over(self, queries: Mapping[str, str], start: float, end: float, step: float) -> Answers:
        """Answer every curve with that of a node and its peers."""
        times = np.arange(start, end + 1e-3, step)
        lines = ("value", "low", "median", "high")
        found = [Series({"line": line}, times, np.full(len(times), 0.5)) for line in lines]
        return dict.fromkeys(queries, found)


class FleetSite:
    """A detector of the fleet and its HTTP server.

    Parameters
    ----------
    jobs
        Nodes of each job.
    """

    def __init__(self, jobs: Mapping[str, int] = FLEET) -> None:
        config = DetectorConfig.model_validate(
            {"metrics": {"enabled": list(_METRICS)}, "listen": {"port": 0, "address": "127.0.0.1"}}
        )
        prepare.prepare()
        self.made_up = FleetServer(config, jobs)
        self._now = float(START + config.history_seconds)
        self.detector = Detector(
            config,
            self.made_up,
            configured_bundle(config)[0],
            clock=lambda: self._now,
            instants=FleetInstants(),
            diagnosers=(),
        )
        facts = WebFacts()
        history = FleetHistory(self.made_up)
        self.server: HttpServer = make_server(
            self.detector, SecurityFile(None, facts), facts, history
        )

    def cycle(self) -> tuple[float, float]:
        """Evaluate all jobs; return seconds on the clock and of CPU without making samples up."""
        self._now += CYCLE
        own, began, cpu = self.made_up.cpu, time.perf_counter(), time.thread_time()
        self.detector.cycle()
        cpu = time.thread_time() - cpu - (self.made_up.cpu - own)
        return time.perf_counter() - began, cpu

    def fail(self) -> None:
        """Let a GPU of each faulty job fall off its bus, and all its ranks say so."""
        for job_id, node in self.made_up.faulty.items():
            root = _root(job_id, self.made_up.jobs[job_id], node, self._now)
            self.detector.memories[job_id].evidence.root = root


def _root(job_id: str, nodes: Sequence[str], node: str, now: float) -> LiveRoot:
    ranks = {rank: nodes[rank // _RANKS_PER_NODE] for rank in range(_RANKS_PER_NODE * len(nodes))}
    job = JobPlaces(tuple(nodes), ranks, {}, {})
    first = Evidence(time=now - 120, kind="xid", name="79", node=node, gpu="3")
    line = Evidence(time=0, kind="log", name="collective_timeout", node="", class_name="D")
    lines = [
        replace(line, time=now - 60 + 0.001 * rank, node=where, rank=rank)
        for rank, where in ranks.items()
    ]
    evidence = (first, *lines)
    return LiveRoot(job_id, now, find_root(job, evidence, job_id=job_id), job, evidence)


def _series(value: float, **labels: str) -> Series:
    return Series(labels, np.array([float(START)]), np.array([value]))
