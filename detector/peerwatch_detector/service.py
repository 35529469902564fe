"""The loop: which jobs are due, what is new about them, what is published.

The detector keeps nothing on disk. After a restart it reads the last minutes again, walks
through them as it would have done then, and takes up the findings that it published before.
A Prometheus that cannot be read leaves everything as it stood: findings stand, the page is
served, a metric says so, and the next cycle tries again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from peerwatch_detector import promql
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import PeerwatchError, ReadError
from peerwatch_detector.explain import Explanation
from peerwatch_detector.frame import JobFrame, Series, from_grid
from peerwatch_detector.jobs import Job, JobTable
from peerwatch_detector.metrics import Snapshot
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.pipeline import JobState, Judgement, judge, new_metric_state
from peerwatch_detector.reader import Reader, metric_samples
from peerwatch_detector.ring import Ring
from peerwatch_detector.scores import ABSENT, Finding, Severity
from peerwatch_detector.steps import Ticks, context_steps, in_ticks

logger = logging.getLogger(__name__)

# Read again this far back each time: what came late then is there now.
_OVERLAP_SECONDS = 5
# How far back to look for findings published before a restart.
_RESTORE_SECONDS = 900
# Kept longer than the history, so that what is read late is not overwritten.
_SPARE_SECONDS = 60
# A finding that began within so many ticks of the first sample left its node no healthy past.
_LEAST_PAST = 60

# What trouble is about: the discovery, ("job", job_id), or ("job", job_id, metric). Job ids are
# anybody's text, so they are kept apart instead of being joined into one name.
_Concern = tuple[str, ...]
_DISCOVERY: _Concern = ("discovery",)


@dataclass(slots=True)
class JobMemory:
    """What the detector holds of one job: samples, streaks, findings.

    ``read_until`` counts steps, the state ticks.
    """

    rings: dict[str, Ring] = field(default_factory=dict)
    read_until: dict[str, int] = field(default_factory=dict)
    state: JobState = field(default_factory=JobState)
    restored: bool = False
    judgement: Judgement | None = None
    last_success: float | None = None


class Detector:
    """Judges all jobs, again and again.

    Parameters
    ----------
    config
        Settings.
    reader
        Where series come from.
    bundle
        Trained models.
    clock
        Unix time in seconds.
    """

    def __init__(
        self,
        config: DetectorConfig,
        reader: Reader,
        bundle: Bundle,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.reader = reader
        self.clock = clock
        self.metrics = config.detection_metrics()
        self._ticks = Ticks.of(config.step_seconds)
        self.models = bundle.models(config, self.metrics)
        self.memories: dict[str, JobMemory] = {}
        self._table = JobTable()
        self._table_is_filled = False
        self._told_roles: dict[tuple[str, str], str] = {}
        self._stages: dict[str, float] = {}
        self._trouble: dict[_Concern, str] = {}
        self.snapshot = Snapshot(models=self._model_labels())

    def run(self, stop: threading.Event) -> None:
        """Cycle until ``stop`` is set; no error of a cycle ends the loop."""
        while not stop.is_set():
            began = time.monotonic()
            try:
                self.cycle()
            except Exception:
                # A bug in one cycle must not silence the detector: the stale alert tells of it.
                logger.exception("cycle_failed")
            stop.wait(max(0.0, self.config.cycle_seconds - (time.monotonic() - began)))

    def cycle(self) -> None:
        """Discover the jobs, judge each of them, publish."""
        self._stages = dict.fromkeys(("discover", "read", "judge"), 0.0)
        now = self.clock()
        try:
            with self._stage("discover"):
                jobs = self._discover(now)
        except ReadError as error:
            self._report(_DISCOVERY, error)
        else:
            self._report(_DISCOVERY, None)
            self.snapshot = replace(self.snapshot, discovered=now)
            for job in jobs:
                self._judge_job(job, now)
            for job_id in self.memories.keys() - {job.job_id for job in jobs}:
                del self.memories[job_id]
                self._told_roles = {
                    pair: role for pair, role in self._told_roles.items() if pair[0] != job_id
                }
                self._forget_trouble(job_id)
                logger.info("job_ended job_id=%s", job_id)
        self._publish()

    def _discover(self, now: float) -> list[Job]:
        discovery = self.config.discovery
        label = self.config.peers.role_label
        answer = self.reader.instant(promql.running_jobs(discovery.job_info, label))
        running = {(one.labels["job_id"], one.labels["node"]) for one in answer}
        # Of two roles that one node tells, the later in order stands, whatever the server's order.
        for one in sorted(answer, key=lambda one: one.labels.get(label or "", "")):
            self._told_roles[one.labels["job_id"], one.labels["node"]] = one.labels.get(
                label or "", ""
            )
        if not self._table_is_filled:
            seconds = math.ceil(self.config.history_seconds)
            query = promql.known_jobs(discovery.job_info, seconds)
            absent = promql.absent_nodes(ABSENT, _RESTORE_SECONDS)
            known = self._pairs(query) | self._pairs(absent)
            # A job that ended before the restart is nobody's business now.
            alive = {job_id for job_id, _ in running}
            self._table.learn({pair for pair in known if pair[0] in alive}, now)
            self._table_is_filled = True
        present = self.reader.instant(promql.present_nodes(discovery.presence))
        if self._trouble.get(_DISCOVERY) and self.snapshot.discovered is not None:
            self._table.skip(now - self.snapshot.discovered)
        jobs = self._table.update(running, {one.labels["node"] for one in present}, now)
        return [replace(job, roles=self._roles(job)) for job in jobs]

    def _roles(self, job: Job) -> dict[str, str]:
        """Return the roles of a job's nodes; a silent node keeps the one it had."""
        roles = {
            node: self.config.peers.role(node, self._told_roles.get((job.job_id, node), ""))
            for node in job.nodes
        }
        return {node: role for node, role in roles.items() if role}

    def _pairs(self, query: str) -> set[tuple[str, str]]:
        return {(one.labels["job_id"], one.labels["node"]) for one in self.reader.instant(query)}

    def _judge_job(self, job: Job, now: float) -> None:
        known = job.job_id in self.memories
        memory = self.memories.setdefault(job.job_id, JobMemory())
        if not known:
            logger.info("job_found job_id=%s nodes=%d", job.job_id, len(job.nodes))
        try:
            with self._stage("read"):
                frames = self._read(job, memory, now)
                self._restore(job, memory, frames)
            with self._stage("judge"):
                before = self._ticks.standing_in_seconds(memory.state.standing)
                memory.judgement = judge(job, frames, self.models, self.config, memory.state, now)
        except Exception as error:
            # One job that cannot be read, or that meets a bug, must not stop the others.
            self._report(("job", job.job_id), error)
            return
        memory.last_success = now
        self._report(("job", job.job_id), None)
        after = {finding.node: finding for finding in memory.judgement.findings}
        _log_changes(before, after, memory.judgement.explanations)

    def _read(self, job: Job, memory: JobMemory, now: float) -> dict[str, JobFrame]:
        """Pull what is new of every metric into its ring and cut the frames to judge."""
        config, step = self.config, self.config.step_seconds
        end = math.floor(round((now - config.prometheus.lag_seconds) / step, 6))
        first = end - round(config.history_seconds / step)
        frames: dict[str, JobFrame] = {}
        answered, refused = False, None
        for metric in self.metrics:
            capacity = config.history_seconds + _SPARE_SECONDS
            ring = memory.rings.setdefault(metric.name, Ring(math.ceil(capacity), step))
            overlap = math.ceil(_OVERLAP_SECONDS / step)
            start = max(first, memory.read_until.get(metric.name, first) - overlap)
            try:
                series = self._samples(metric, job, start, end)
            except ReadError as error:
                # A refused query costs its metric; anything else concerns the whole server.
                if error.reason not in {"refused", "http_4xx"}:
                    raise
                refused = error
                self._report(("job", job.job_id, metric.name), error)
                continue
            self._report(("job", job.job_id, metric.name), None)
            answered = True
            ring.write(series)
            memory.read_until[metric.name] = end
            ring.keep(job.nodes)
            if ring.newest < 0:
                continue
            left = max(first, min(self._since(metric, memory, first), end - context_steps(step)))
            begin, until = self._times(left, end)
            frames[metric.name] = ring.frame(job.job_id, metric.name, job.nodes, begin, until)
        if refused is not None and not answered:
            raise refused
        return frames

    def _since(self, metric: MetricConfig, memory: JobMemory, first: int) -> int:
        """Return the step at which the samples must begin that new windows are made of."""
        judged = memory.state.metrics.get(metric.name)
        step = self.config.step_seconds
        margin = self.config.margin_seconds + (metric.peak_seconds or 0)
        since = first
        if judged:
            since = math.floor(round(judged.judged_until / (self._ticks.per_second * step), 6))
        return since - math.ceil(round(margin / step, 6))

    def _times(self, start: int, end: int) -> tuple[float, float]:
        """Return the Unix times of two steps."""
        begin, until = from_grid(np.array([start, end]), self.config.step_seconds)
        return float(begin), float(until)

    def _samples(self, metric: MetricConfig, job: Job, start: int, end: int) -> list[Series]:
        begin, until = self._times(start, end)
        return metric_samples(self.reader, metric, job.job_id, begin, until, self.config)

    def _restore(self, job: Job, memory: JobMemory, frames: dict[str, JobFrame]) -> None:
        """Take up the findings that stood before a restart."""
        if memory.restored:
            return
        ranks = {metric.name: rank for rank, metric in enumerate(self.metrics, start=1)}
        query = promql.published_findings(job.job_id, _RESTORE_SECONDS)
        # A node may have had an earlier finding by another metric: the newest one stood.
        for one in sorted(self.reader.instant(query), key=lambda one: float(one.values[-1])):
            finding = _restored(job.job_id, one, ranks)
            if finding is None or finding.node not in job.nodes:
                continue
            memory.state.standing[finding.node] = self._ticks.finding(finding)
            logger.info(
                "finding_restored job_id=%s node=%s metric=%s since=%.0f",
                job.job_id,
                finding.node,
                finding.metric,
                finding.since,
            )
            self._distrust(finding, memory, frames)
        memory.restored = True

    def _distrust(self, finding: Finding, memory: JobMemory, frames: dict[str, JobFrame]) -> None:
        """Keep the faulty past of a node from becoming its baseline."""
        blank = in_ticks(self.config)
        for name, frame in frames.items():
            if finding.since < frame.times[0] + _LEAST_PAST / self._ticks.per_second:
                metric = memory.state.metrics.setdefault(name, new_metric_state(blank))
                metric.baseline.follow(frame.nodes)
                metric.baseline.assume_like_peers(finding.node)

    def _publish(self) -> None:
        statistics = self.reader.statistics
        self.snapshot = Snapshot(
            judgements=tuple(m.judgement for m in self.memories.values() if m.judgement),
            last_success={
                job_id: m.last_success
                for job_id, m in self.memories.items()
                if m.last_success is not None
            },
            discovered=self.snapshot.discovered,
            stages=self._stages,
            models=self.snapshot.models,
            samples=statistics.samples,
            errors=dict(statistics.errors),
            up=statistics.up,
        )

    def _report(self, concern: _Concern, error: Exception | None) -> None:
        """Log trouble once when it begins or changes, and once when it ends."""
        reason = "" if error is None else getattr(error, "reason", type(error).__name__)
        if reason == self._trouble.get(concern, ""):
            return
        self._trouble[concern] = reason
        what = "/".join(concern[1:] or concern)
        if error is None:
            logger.info("recovered what=%s", what)
        else:
            bug = not isinstance(error, PeerwatchError)
            logger.warning("failed what=%s reason=%s error=%s", what, reason, error, exc_info=bug)

    def _forget_trouble(self, job_id: str) -> None:
        for concern in [one for one in self._trouble if one[:2] == ("job", job_id)]:
            del self._trouble[concern]

    def _model_labels(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((name, model.name, model.fingerprint) for name, model in self.models.items())

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + time.perf_counter() - began


def _restored(job_id: str, series: Series, ranks: dict[str, int]) -> Finding | None:
    """Return a published finding, or None if its labels are not of this version."""
    labels, since = series.labels, float(series.values[-1])
    severities: dict[str, Severity] = {"critical": "critical", "warning": "warning"}
    severity = severities.get(labels.get("severity", ""))
    if severity is None or "node" not in labels or "metric" not in labels:
        return None
    return Finding(
        job_id,
        labels["node"],
        labels.get("gpu", ""),
        labels["metric"],
        labels.get("method", ""),
        severity,
        ranks.get(labels["metric"], 0),
        since,
        since,
        0.0,
    )


def _log_changes(
    before: dict[str, Finding], after: dict[str, Finding], why: dict[Finding, Explanation]
) -> None:
    for finding in after.values():
        if before.get(finding.node) != finding:
            logger.warning(
                "finding_raised job_id=%s node=%s gpu=%s metric=%s method=%s score=%.2f since=%.0f "
                "family=%s why=%r",
                finding.job_id,
                finding.node,
                finding.gpu,
                finding.metric,
                finding.method,
                finding.score,
                finding.since,
                why[finding].means.family,
                why[finding].sentence,
            )
    for node, finding in before.items():
        if node not in after:
            logger.info(
                "finding_cleared job_id=%s node=%s metric=%s", finding.job_id, node, finding.metric
            )
