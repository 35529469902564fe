"""Stand-ins that satisfy the detector's protocols, and builders for what the tests feed it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Deviation, Finding
from peerwatch_detector.detection.job_detector import Detection, JobDetector
from peerwatch_detector.detection.pipeline import evaluate
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import JobFrame, PartialAnswer, Series
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.reading import Block, Grid, Reading, ReadingStatistics, Selection, promql
from peerwatch_detector.reading.reader import selection_of
from peerwatch_detector.reading.transport.envelope import Annotations
from peerwatch_detector.reading.transport.request import RangeResult

START = 1_700_000_000
# Second from which ``shifted`` nodes deviate.
ONSET = 300


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = START) -> None:
        self.now = float(now)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Span:
    """A time in which something is there, both ends included."""

    start: float
    end: float = np.inf

    def __contains__(self, time: float) -> bool:
        return self.start <= time <= self.end

    def meets(self, start: float, end: float) -> bool:
        return self.start <= end and self.end >= start


@dataclass
class Request:
    """One read the detector made."""

    kind: str
    query: str
    start: float = 0.0
    end: float = 0.0


@dataclass
class FakeReader:
    """A Prometheus in memory: which node tells of which job when, and recorded series.

    ``failure`` fails every read with that reason; ``failures_by_query`` only those whose query
    contains the key.
    """

    clock: FakeClock
    config: DetectorConfig
    members: dict[tuple[str, str], list[Span]] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)
    present: dict[str, list[Span]] = field(default_factory=dict)
    recorded: dict[tuple[str, str], list[Series]] = field(default_factory=dict)
    published: list[tuple[float, dict[str, str], float]] = field(default_factory=list)
    # By job: how many nodes it has, and the step rate published last, with its time.
    step_rates: dict[str, tuple[int, float, Any]] = field(default_factory=dict)
    failure: ReadFailure | None = None
    # Whether answers lack something, as when a store is down: it says so.
    partial: bool = False
    failures_by_query: dict[str, Exception] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    statistics: ReadingStatistics = field(default_factory=ReadingStatistics)

    def add_job(
        self, job_id: str, values: dict[str, np.ndarray], names: tuple[str, ...], start: float
    ) -> None:
        """Let a job run from ``start`` with one row of 1 s samples per node (and GPU)."""
        for name in names:
            self.members[job_id, name] = [Span(start)]
            self.present.setdefault(name, [Span(start)])
        for metric, grid in values.items():
            for node, row in zip(names, grid, strict=True):
                rows = [("", row)] if row.ndim == 1 else [(str(g), r) for g, r in enumerate(row)]
                for gpu, samples in rows:
                    labels = {"job_id": job_id, "node": node} | ({"gpu": gpu} if gpu else {})
                    times = start + np.arange(len(samples), dtype=np.float64)
                    self.recorded.setdefault((job_id, metric), []).append(
                        Series(labels, times, samples.astype(np.float64))
                    )

    def remove_node(self, job_id: str, node: str, time: float) -> None:
        """Let a node vanish with its exporter."""
        self.leave(job_id, node, time)
        for span in self.present[node]:
            span.end = min(span.end, time)
        for series_list in self.recorded.values():
            for index, series in enumerate(series_list):
                if series.labels["node"] == node:
                    keep = series.times <= time
                    series_list[index] = Series(
                        series.labels, series.times[keep], series.values[keep]
                    )

    def leave(self, job_id: str, node: str, time: float) -> None:
        """Let a node stop telling of its job."""
        for span in self.members[job_id, node]:
            span.end = min(span.end, time)

    def publish(self, snapshot: Any) -> None:
        """Scrape the detector's findings, as Prometheus would."""
        names = ("job_id", "node", "gpu", "metric", "method", "severity")
        for detection in snapshot.detections:
            for finding in detection.findings:
                labels = dict(zip(names, finding.key, strict=True))
                self.published.append((self.clock.now, labels, finding.since))
            job, (_, time, last) = (
                detection.job,
                self.step_rates.get(detection.job.job_id, (0, 0, None)),
            )
            if detection.step_rate is not None:
                time, last = self.clock.now, detection.step_rate
            self.step_rates[job.job_id] = (len(job.nodes), time, last)

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        self._ask(Request("instant", query))
        found = self._instant(query, self.clock.now if at is None else at)
        self.statistics.samples += len(found)
        return PartialAnswer(found) if self.partial else found

    def _instant(self, query: str, now: float) -> list[Series]:
        discovery = self.config.discovery
        window = re.search(r"\[(\d+)s\]", query)
        back = float(window[1]) if window else 0.0
        label = self.config.peers.role_label
        if query == promql.running_jobs(discovery.job_info, label) and label is not None:
            return [
                _sample(
                    {"job_id": job, "node": node, label: self.roles.get((job, node), "")}, now, 1
                )
                for (job, node), spans in self.members.items()
                if any(now in span for span in spans)
            ]
        if query in (
            promql.running_jobs(discovery.job_info),
            promql.known_jobs(discovery.job_info, int(back)),
        ):
            return [
                _sample({"job_id": job_id, "node": node}, now, 1)
                for (job_id, node), spans in self.members.items()
                if any(span.meets(now - back, now) for span in spans)
            ]
        if query == promql.present_nodes(discovery.presence):
            return [
                _sample({"node": node}, now, 1)
                for node, spans in self.present.items()
                if any(now in span for span in spans)
            ]
        if query == promql.absent_nodes("absent", int(back)):
            return [
                _sample({"job_id": labels["job_id"], "node": labels["node"]}, now, 1)
                for time, labels, _ in self.published
                if now - back <= time and labels.get("metric") == "absent"
            ]
        for job_id, (nodes, time, step_rate) in self.step_rates.items():
            if query == promql.published_step_rate(job_id, nodes, int(back)) and now - back <= time:
                return [_sample({"metric": step_rate.metric}, now, step_rate.usual)]
        latest = {}
        for time, labels, since in self.published:
            if now - back <= time and query == promql.published_findings(
                labels["job_id"], int(back)
            ):
                shown = {k: v for k, v in labels.items() if k != "job_id" and v}
                latest[tuple(shown.items())] = (shown, since)
        return [_sample(labels, now, since) for labels, since in latest.values()]

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        return [
            Reading(selection, self._outcome(selection, grid), "query") for selection in selections
        ]

    def _outcome(self, selection: Selection, grid: Grid) -> RangeResult | ReadError:
        kind = "raw" if selection.expression is None else "stepped"
        query = selection.expression or selection.selector
        try:
            self._ask(Request(kind, query, grid.start / 1000, grid.end / 1000))
        except ReadError as error:
            return error
        asked = {
            selection_of(metric, job_id, self.config): (job_id, metric.name)
            for metric in self.config.read_metrics()
            for job_id, _ in self.recorded
        }
        found = self.recorded.get(asked[selection], []) if selection in asked else []
        return RangeResult(self._block(found, selection, grid), Annotations(), 0)

    def _block(self, series: list[Series], selection: Selection, grid: Grid) -> Block:
        age = 0.0 if selection.expression else self.config.prometheus.reading.max_age_seconds
        rows, samples = {}, 0
        for recording in series:
            here = (recording.times >= grid.start / 1000 - age) & (
                recording.times <= min(grid.end / 1000, self.clock.now)
            )
            if here.any():
                key = (recording.labels["node"], recording.labels.get("gpu", ""))
                rows[key] = last_values(recording.times[here], recording.values[here], grid, age)
                samples += int(here.sum())
        self.statistics.samples += samples
        values = np.array(list(rows.values()), np.float32).reshape(len(rows), grid.steps)
        return Block(grid, tuple(rows), values, samples)

    def _ask(self, request: Request) -> None:
        self.requests.append(request)
        errors = self.statistics.errors
        for text, error in self.failures_by_query.items():
            if text in request.query:
                if isinstance(error, ReadError):
                    self.statistics.up = False
                    errors[error.reason] = errors.get(error.reason, 0) + 1
                raise error
        if self.failure is not None:
            self.statistics.up = False
            errors[self.failure] = errors.get(self.failure, 0) + 1
            raise ReadError(self.failure, f"The fake Prometheus is {self.failure}.")
        self.statistics.up = True


def last_values(times: np.ndarray, values: np.ndarray, grid: Grid, age: float) -> np.ndarray:
    """Return at every step the newest value that is not older than so many seconds."""
    newest = np.searchsorted(times, grid.times + 1e-6, side="right") - 1
    fresh = (newest >= 0) & (grid.times - times[newest] <= age + 1e-6)
    return np.where(fresh & np.isfinite(values[newest]), values[newest], np.nan)


def _sample(labels: dict[str, str], time: float, value: float) -> Series:
    return Series(labels, np.array([time]), np.array([value], dtype=np.float64))


def metric(name: str = "load", **changes: Any) -> dict[str, Any]:
    """Return the settings of a detection metric of the tests' own."""
    return {
        "name": name,
        "unit": "ratio",
        "recorded": f"job_node:{name}:ratio",
        "expression": f"{name}{{ {{{{- job -}}}} }}",
        "bounds": [0, 1],
        "min_effect_size": 0.1,
    } | changes


def config_for(*metrics: dict[str, Any], **settings: Any) -> DetectorConfig:
    """Return a configuration that looks at these metrics only."""
    chosen = list(metrics) or [metric()]
    names = [chosen_metric["name"] for chosen_metric in chosen]
    return DetectorConfig.model_validate(
        {"metrics": {"extra": chosen, "enabled": names}} | settings
    )


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"node-{index:02d}" for index in range(count))


def healthy(
    nodes: int,
    seconds: int,
    seed: int = 0,
    *,
    level: float = 0.5,
    noise: float = 0.01,
    spread: float = 0.04,
) -> np.ndarray:
    """Return levels with noise and static offsets, shape (nodes, seconds)."""
    rng = np.random.default_rng(seed)
    offsets = rng.uniform(-spread, spread, (nodes, 1))
    # All nodes follow the same iterations.
    common = 0.05 * np.sin(np.arange(seconds) / 7.0)
    values = level + offsets + common + rng.normal(0, noise, (nodes, seconds))
    return np.clip(values, 0, 1).astype(np.float32)


def shifted(nodes: int, seconds: int, faulty: dict[int, float], seed: int = 0) -> np.ndarray:
    """Return healthy levels of which some nodes shift for good from ``ONSET`` on."""
    values = healthy(nodes, seconds, seed)
    for node, shift in faulty.items():
        values[node, ONSET:] += shift
    return values


def healthy_gpus(nodes: int, gpus: int, seconds: int, seed: int = 0) -> np.ndarray:
    """Return the same per GPU, shape (nodes, gpus, seconds)."""
    flat = healthy(nodes * gpus, seconds, seed)
    return flat.reshape(nodes, gpus, seconds)


@dataclass
class Replay:
    """Feeds recorded values to a ``JobDetector`` cycle by cycle, as the service would.

    Parameters
    ----------
    values
        By metric, shape (nodes, seconds) or (nodes, gpus, seconds), NaN = missing.
    quiet
        Seconds at the beginning in which no finding is due. Their cycles have a minute, in which
        none can come and go: fewer find the same (``detection/test_peerwatch.py``), in less time.
    """

    config: DetectorConfig
    values: dict[str, np.ndarray]
    quiet: int = 0
    job_id: str = "job-1"
    absent_since: dict[str, float] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
    detector: JobDetector = field(init=False)
    raised: list[Finding] = field(default_factory=list)
    detection: Detection | None = None
    done: int = 0

    def __post_init__(self) -> None:
        models = {name: Identity() for name in self.values} | self.models
        self.detector = JobDetector(self.config, models)

    @property
    def state(self) -> JobState:
        return self.detector.state

    @property
    def metrics(self) -> Any:
        """What the method remembers of each metric."""
        return self.detector.method.metrics

    @property
    def nodes(self) -> tuple[str, ...]:
        return node_names(len(next(iter(self.values.values()))))

    def frame(self, name: str, left: int, right: int) -> JobFrame:
        """Return the seconds left to right - 1 of one metric."""
        from peerwatch_detector.frame import mean_over_gpus

        part = self.values[name][..., left:right]
        times = START + np.arange(left, right, dtype=np.float64)
        if part.ndim == 2:
            return JobFrame(self.job_id, name, self.nodes, times, part)
        gpus = tuple(str(gpu) for gpu in range(part.shape[1]))
        return JobFrame(self.job_id, name, self.nodes, times, mean_over_gpus(part), gpus, part)

    def step(self, until: int) -> Detection:
        """Evaluate everything up to and without second ``until``."""
        margin = self.config.margin_seconds
        left = max(0, min(self.done - margin, until - 31))
        frames = {name: self.frame(name, left, until) for name in self.values}
        now = START + until - 1.0
        silent = {n: s for n, s in self.absent_since.items() if s <= now}
        job = Job(self.job_id, self.nodes, silent, roles=self.roles)
        before = dict(self.state.standing)
        self.detection = evaluate(self.detector, job, frames, now)
        self.raised += [f for n, f in self.state.standing.items() if before.get(n) != f]
        self.done = until
        return self.detection

    def run(self, until: int | None = None, cycle: int = 15) -> list[Finding]:
        """Evaluate in cycles and return all findings in the order they were raised.

        Scores are computed in the last cycle only: no finding depends on them
        (``backtest/test_backtest.py``), and they take most of the time.
        """
        end = until or next(iter(self.values.values())).shape[-1]
        while self.done < end:
            next_end = min(self.done + cycle, end)
            if next_end < self.quiet:
                next_end = min(self.done + max(cycle, 60), self.quiet, end)
            self.detector.method.shows_scores = next_end == end
            self.step(next_end)
        return self.raised

    @property
    def standing(self) -> dict[str, Finding]:
        return self.state.standing


def flagged(findings: list[Finding]) -> list[tuple[str, str]]:
    """Return (node, metric) of findings."""
    return [(finding.node, finding.metric) for finding in findings]


def a_deviation(node: str = "a", **changes: Any) -> Deviation:
    """Return a deviation that has lasted long enough to be a finding."""
    values: dict[str, Any] = {
        "node": node,
        "gpu": "",
        "metric": "load",
        "method": "peerwatch",
        "rank": 1,
        "since": 1000.0,
        "seconds": 240.0,
        "threshold": 240.0,
        "score": 9.0,
        "quiet": 0.0,
    }
    return Deviation(**(values | changes))


def a_finding(node: str = "a", **changes: Any) -> Finding:
    """Return a finding."""
    values: dict[str, Any] = {
        "job_id": "job-1",
        "node": node,
        "gpu": "",
        "metric": "load",
        "method": "peerwatch",
        "severity": "critical",
        "rank": 1,
        "since": 1000.0,
        "raised": 1240.0,
        "score": 9.0,
    }
    return Finding(**(values | changes))
