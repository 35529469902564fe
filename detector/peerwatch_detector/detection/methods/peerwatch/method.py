"""Method ``peerwatch``: every node against its peers and its own past, step by step.

Steps lie at whole multiples of five samples of a second at most, whatever the cycles, and every
metric is evaluated at the same step, so that what one metric shows is assessed by what the others
do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import ClassVar

import numpy as np

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.detection.explanation.record import explain_all
from peerwatch_detector.detection.findings import (
    ABSENT,
    Deviation,
    Finding,
    raise_findings,
    raise_strongest,
    still_standing,
)
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.detection.methods.base import Method, MetricScores, ranked
from peerwatch_detector.detection.methods.peerwatch.absence import (
    absent_at,
    explain_the_wait,
    with_lengths,
)
from peerwatch_detector.detection.methods.peerwatch.comparison import OF_PROCESSES, compare_steps
from peerwatch_detector.detection.methods.peerwatch.evidence import (
    Evidence,
    assess,
    collect_evidence,
)
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep, next_step
from peerwatch_detector.detection.methods.peerwatch.memory import MetricMemory
from peerwatch_detector.detection.methods.peerwatch.metric_view import MetricView, metric_view
from peerwatch_detector.detection.methods.peerwatch.peers import job_median
from peerwatch_detector.detection.methods.peerwatch.progress import ProgressTracker
from peerwatch_detector.detection.methods.peerwatch.roles import groups_of, peers_of
from peerwatch_detector.detection.scores import score_newest
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.detection.time_grid import elapsed
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model

# Progress needs a minute of past, or half of a shorter baseline, to have a usual level.
_LEAST_SECONDS = 60
# So much of progress must be known before and after a moment to compare, or this share of a
# shorter continuity: a minute holds some iterations.
_COMPARED_SECONDS, _COMPARED_SHARE = 60, 0.25
# In so many thirds of its time a deviation must have cost progress. Other programs are common
# beside a job, so what they show must have cost some all the time.
_PARTS_OF_FAULT, _PARTS_OF_LOAD = 2, 3


class PeerwatchMethod(Method):
    """One job by method ``peerwatch``; see ``Method``."""

    counts_absent: ClassVar[bool] = True

    def __init__(
        self, config: DetectorConfig, models: Mapping[str, Model], state: JobState
    ) -> None:
        self.metrics: dict[str, MetricMemory] = {}
        self._config, self._models, self._state = config, models, state
        self._priority = config.detection_metrics()
        self._counters = {each.name: each.sets_step_rate for each in config.progress_counters()}
        self._progress = _progress_tracker(config, self._counters)
        self._step = JobStep()
        self._nodes: tuple[str, ...] = ()
        # Steps at which metrics were compared, and that are not assessed yet.
        self._ahead: list[JobStep] = []
        self._deviations: list[Deviation] = []

    def compare(self, job: Job, frames: Mapping[str, JobFrame]) -> None:
        """Compare some metrics; those that tell what the job does must come first."""
        self._compare(job, self._views(job, frames), frames)

    def detect(
        self, job: Job, frames: Mapping[str, JobFrame], absent: list[Deviation], now: float
    ) -> list[Deviation]:
        """Compare all metrics and assess every new step."""
        views = self._views(job, frames)
        if self.shows_scores:
            self._score_newest(views)
        self._compare(job, views, frames)
        # A cycle may be shorter than a step: what ran at the last one still does.
        self._deviations = [running for running in self._deviations if running.node in job.nodes]
        while self._ahead:
            self._step = self._ahead.pop(0)
            self._progress.choose(self._step.choices)
            self._assess(job, views, frames, absent, now)
        for view in views:
            view.memory.evaluated_until = self._step.time
        return [*with_lengths(absent, self._step, self._config), *self._deviations]

    def raise_findings(self, job: Job, deviations: list[Deviation], now: float) -> None:
        """Raise the absent nodes; the others were raised step by step."""
        absent = [deviation for deviation in deviations if deviation.metric == ABSENT]
        self._raise(job, absent, now, known=self._progress.known)

    def quiet_seconds(self, node: str) -> float | None:
        """Return the shortest time over all metrics and sides."""
        each_metric = (memory.trackers for memory in self.metrics.values())
        quiet = [tracker.quiet_seconds(node) for pair in each_metric for tracker in pair]
        return min((seconds for seconds in quiet if seconds is not None), default=None)

    def scores(self, metrics: Iterable[str]) -> dict[str, MetricScores]:
        """Return the newest window's scores; the findings come of the levels, not of these."""
        shown = {name: self.metrics[name] for name in metrics}
        return {
            name: MetricScores.of(memory.scores, memory.continuity())
            for name, memory in shown.items()
        }

    def needed_from(self) -> dict[str, float]:
        """Return where the first candidate of each metric is that is not assessed yet."""
        counted = dict.fromkeys(self._counters, self._step.time)
        return counted | {name: memory.needed_from for name, memory in self.metrics.items()}

    def assume_like_peers(self, node: str, frame: JobFrame) -> None:
        """Let a node have no offset of its own in a metric."""
        if frame.metric in self._counters:
            return
        memory = self._memory_of(frame.metric)
        memory.baseline.follow(frame.nodes)
        memory.baseline.assume_like_peers(node)

    def peers_of(self, node: str, job: Job) -> tuple[str, ...]:
        """Return the nodes of the same role, where roles are known."""
        return peers_of(node, job, self._config)

    def progress_since(self, since: float, time: float) -> JobProgress:
        """Return what the job does by the last step that was evaluated."""
        step = self._step
        if not step.phase.known:
            return JobProgress("unknown")
        if step.waits_seconds is not None:
            return JobProgress("waits", waits_seconds=step.waits_seconds)
        still, idle = self._progress.still_seconds(step.time), self._progress.is_idle(step.time)
        if idle or still is not None:
            return JobProgress("rests" if idle else "unknown", still_seconds=still)
        loss = self._loss(since, time)
        if not np.isfinite(loss):
            return JobProgress("trains")
        slowed = loss >= self._config.peerwatch.progress_loss
        return JobProgress("slowed" if slowed else "trains", loss)

    def step_rate(self) -> JobStepRate | None:
        """Return the job's step rate at the last step that was evaluated."""
        return self._progress.step_rate(self._step.time) if self._counters else None

    def restore_step_rate(self, metric: str, usual: float) -> None:
        """Go on with the usual step rate that was published before."""
        self._progress.restore(metric, usual)

    @property
    def common_cause(self) -> bool:
        """Whether any metric leaves out deviations."""
        return any(memory.common_cause for memory in self.metrics.values())

    def _memory_of(self, metric: str) -> MetricMemory:
        memory = self.metrics.get(metric)
        if memory is None:
            memory = self.metrics[metric] = MetricMemory.empty(self._config)
        return memory

    def _views(self, job: Job, frames: Mapping[str, JobFrame]) -> list[MetricView]:
        """Return the metrics' samples; what is remembered of them follows the job's nodes."""
        roles, config = groups_of(job, self._config), self._config
        found = ranked(self._priority, frames)
        for _, metric in found:
            frame, memory = frames[metric.name], self._memory_of(metric.name)
            per_gpu = config.peerwatch.per_gpu and frame.gpu_values is not None
            memory.follow(frame.nodes, frame.gpus if per_gpu else (), roles)

        def view(place: tuple[int, MetricConfig]) -> MetricView:
            rank, metric = place
            name = metric.name
            return metric_view(frames[name], metric, rank, config, self.metrics[name], roles)

        return each(view, found, self._threads(frames.values()))

    def _threads(self, frames: Iterable[JobFrame]) -> int:
        return worthwhile(self._config.scheduling.detection_threads, frames)

    def _score_newest(self, views: list[MetricView]) -> None:
        """Embed and compare the newest window of every metric, to be shown."""

        def score(view: MetricView) -> None:
            metric = view.metric
            windows = score_newest(view.frame, metric, self._models[metric.name], self._config)
            if windows is not None:
                view.memory.scores.take(windows)

        each(score, views, self._threads([view.frame for view in views]))

    def _compare(self, job: Job, views: list[MetricView], frames: Mapping[str, JobFrame]) -> None:
        """Compare metrics at all steps that are not assessed yet."""
        config = self._config
        if self._nodes and self._nodes != job.nodes:
            self._progress.begin_anew(self._step.time)
        self._nodes = job.nodes
        for name in self._counters:
            if name in frames:
                counted = frames[name]
                self._progress.write(name, 0.0, counted.times, job_median(counted.values))
        roles = self._progress.of_roles(groups_of(job, config))
        for view in views:
            name, floor = view.metric.name, view.metric.level_floor
            self._progress.write(name, floor, view.frame.times, view.middle)
            for group in view.groups:
                if group.role in roles:
                    roles[group.role].write(name, floor, view.frame.times, group.middle)
        last = self._ahead[-1] if self._ahead else self._step
        for time in _step_times(views, last.time, config.evaluation_seconds):
            last = next_step(last, time, self._progress, config)
            self._ahead.append(last)
        compare = partial(
            compare_steps,
            steps=self._ahead,
            models=self._models,
            config=config,
            flagged=self._state.standing.keys(),
        )
        each(compare, views, self._threads([view.frame for view in views]))

    def _assess(
        self,
        job: Job,
        views: list[MetricView],
        frames: Mapping[str, JobFrame],
        absent: list[Deviation],
        now: float,
    ) -> None:
        """Assess what all metrics show at one step, and raise what is certain."""
        step, config = self._step, self._config
        for view in views:
            _track(view, step, self._state.standing.keys())
        evidence = _collect(views, config)
        self._deviations = assess(evidence, step, partial(self._loss_of, time=step.time), config)
        self._clear(job, step.time)
        resting = step.phase.idle and not step.phase.ended
        if len(job.nodes) < config.min_nodes or resting:
            return
        gone = absent_at(absent, step, config)
        explained = explain_the_wait(gone, step, config)
        sustained = gone if explained else [*gone, *self._deviations]
        new = self._raise(job, sustained, now, known=step.phase.known)
        self._state.explanations |= explain_all(
            new,
            step.time,
            self._deviations,
            frames,
            config,
            peers_of=partial(self.peers_of, job=job),
            progress_since=partial(self.progress_since, time=step.time),
        )

    def _loss_of(self, item: Evidence, time: float) -> float:
        """Return the share of progress that a deviation may have cost; NaN = not known."""
        parts = _PARTS_OF_LOAD if item.is_load else _PARTS_OF_FAULT
        return self._loss(item.since, time, parts * self._config.peerwatch.steady_loss)

    def _loss(self, since: float, time: float, parts: int = 0) -> float:
        """Return the share of progress lost since a Unix time; NaN = not known."""
        shortest = _COMPARED_SHARE * self._config.continuity.threshold_seconds
        return self._progress.loss(since, time, min(_COMPARED_SECONDS, shortest), parts)

    def _raise(
        self, job: Job, deviations: list[Deviation], now: float, *, known: bool
    ) -> list[Finding]:
        """Raise findings: the strongest first where progress is known, else in metric priority."""
        state, resolution = self._state, self._config.resolution_seconds
        if known:
            new = raise_strongest(
                job.job_id,
                now,
                state.flagged,
                [*state.recent, *state.flagged.values()],
                deviations,
                resolution,
                symptoms=self._config.peerwatch.symptoms,
            )
        else:
            new = raise_findings(job.job_id, now, state.flagged, deviations, resolution)
        state.add(new, now, resolution)
        return new

    def _clear(self, job: Job, time: float) -> None:
        """Let findings fall whose nodes have been quiet for long enough."""
        state = self._state
        absent = state.last_absent.keys() | job.absent_since.keys()
        quiet: dict[str, float] = {}
        for node in state.standing.keys() - absent:
            seconds = self.quiet_seconds(node)
            if seconds is not None:
                # What was quiet before a fault began says nothing about its end.
                quiet[node] = min(seconds, elapsed(state.standing[node].since, time))
        state.standing = still_standing(
            state.standing, quiet, self._config.continuity.clear_seconds
        )


def _progress_tracker(config: DetectorConfig, counters: Mapping[str, bool]) -> ProgressTracker:
    baseline = int(config.similarity.baseline_seconds) or 2 * _LEAST_SECONDS
    least = min(_LEAST_SECONDS, baseline // 2)
    return ProgressTracker(config.peerwatch, least, min(1.0, config.step_seconds), counters)


def _step_times(views: list[MetricView], after: float, seconds: float) -> list[float]:
    """Return the times of the steps that are not compared yet: whole multiples of ``seconds``."""
    grids = [view.grid for view in views if view.grid.count]
    if not grids:
        return []
    oldest = min(grid.start for grid in grids)
    newest = max(grid.time(grid.count - 1) for grid in grids)
    first = max(math.ceil(round(oldest / seconds, 4)), round(after / seconds) + 1)
    last = math.floor(round(newest / seconds, 4))
    return [round(number * seconds, 3) for number in range(first, last + 1)]


def _track(view: MetricView, step: JobStep, flagged: Collection[str]) -> None:
    """Take what a metric showed at a step into its deviations."""
    if step.resumed and view.metric.kind in OF_PROCESSES:
        # By what is learned anew nobody can be evaluated yet: they would stand until it is.
        for side in (view.memory.high, view.memory.low):
            side.forget(flagged)
    found = view.memory.compared.pop(step.time, None)
    if found is None:
        return
    sides = view.memory.high, view.memory.low
    if not found.anybody and not any(side.runs for side in sides):
        evaluated = found.who(found.evaluated)
        for side, common in zip(sides, found.common, strict=True):
            side.pass_by(step, evaluated, common=common)
        return
    (high, evaluated, _), (low, _, unobservable) = found.sides()
    view.memory.high.update(step, high, evaluated)
    view.memory.low.update(step, low, evaluated, unobservable)


def _collect(views: list[MetricView], config: DetectorConfig) -> list[Evidence]:
    """Return the running deviations of all metrics as evidence."""
    evidence: list[Evidence] = []
    for view in views:
        memory = view.memory
        common = memory.high.common or memory.low.common
        for tracker, high in ((memory.high, True), (memory.low, False)):
            if not tracker.runs:
                continue
            found, left_out = collect_evidence(
                tracker,
                view.metric,
                view.rank,
                view.gpus,
                high=high,
                common_cause=config.peerwatch.common_cause,
            )
            evidence += found
            common |= left_out
        memory.common_cause = common
    return evidence
