"""The method ``peerwatch``, step by step.

Steps lie at whole multiples of a few seconds, whatever the cycles, and every metric is judged at
the same step, so that what one metric shows can be weighed by what the others do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.baseline import STEP, Usual
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.deviation import Deviation, Side, deviate, side
from peerwatch_detector.evidence import Moment, Sign, collect_signs, weigh
from peerwatch_detector.explain import JobCourse, explain, measure
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.levels import Scale
from peerwatch_detector.models.base import Model
from peerwatch_detector.peers import Levels, job_median
from peerwatch_detector.preprocess import fill_nearest, min_max
from peerwatch_detector.progress import Phase, Progress
from peerwatch_detector.scores import (
    ABSENT,
    Finding,
    Streak,
    raise_findings,
    raise_strongest,
    still_standing,
)
from peerwatch_detector.similarity import Mask, distance_sums, peer_score
from peerwatch_detector.state import JobState, MetricState

# Progress needs a minute of past, or half of a shorter baseline, to have a usual level.
_LEAST_SECONDS = 60
# Before and after a streak's begin, this share of the continuity must be known to compare.
_COMPARED_SHARE = 0.25
# The job began to wait this long before that was certain: half of what is looked at.
_NOTICED_AFTER = 12.0
# A sample may come this late and still be learned from.
_LATEST_SECONDS = 10
# Findings are remembered this long to tell their symptoms.
_REMEMBER_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class View:
    """One metric's samples of a cycle, ready to be cut into steps.

    Parameters
    ----------
    metric, rank
        The metric and its place in the priority.
    frame
        The samples.
    units
        Shape (n_units, n_steps): nodes, or GPUs of nodes.
    gpus
        Names of the GPUs; one empty name for a metric per node.
    middle
        The job's median, shape (n_steps,).
    memory
        What is remembered of the metric.
    scale
        How levels are compared.
    """

    metric: MetricConfig
    rank: int
    frame: JobFrame
    units: NDArray[np.float32]
    gpus: tuple[str, ...]
    middle: Levels
    memory: MetricState
    scale: Scale

    def columns(self, time: int, seconds: int) -> slice:
        """Return where the seconds up to and with ``time`` are."""
        first, last = np.searchsorted(self.frame.times, (time - seconds, time), side="right")
        return slice(int(first), int(last))


def view(
    frame: JobFrame, metric: MetricConfig, rank: int, config: DetectorConfig, memory: MetricState
) -> View:
    """Prepare one metric's samples."""
    units = frame.values
    gpus: tuple[str, ...] = ("",)
    if config.peerwatch.per_gpu and frame.gpu_values is not None and len(frame.gpus):
        units = frame.gpu_values.reshape(-1, frame.gpu_values.shape[-1])
        gpus = frame.gpus
    scale = Scale(metric.level_floor, config.peerwatch.scale == "factor")
    return View(metric, rank, frame, units, gpus, job_median(units), memory, scale)


def walk(
    job: Job,
    views: list[View],
    models: dict[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
    absent: list[Streak],
) -> list[Streak]:
    """Judge all new steps of a job.

    Parameters
    ----------
    job
        The job as discovered.
    views
        Its metrics.
    models
        By metric.
    config
        Settings.
    state
        Changed in place, findings included.
    now
        Unix time, for the findings' ``raised``.
    absent
        Nodes that are silent now.

    Returns
    -------
    list[Streak]
        The running streaks after the last step.
    """
    progress = _progress(config, state)
    for one in views:
        times = np.rint(one.frame.times).astype(np.int64)
        progress.write(one.metric.name, one.metric.level_floor, times, one.middle)
    frames = {one.metric.name: one.frame for one in views}
    streaks: list[Streak] = []
    for time in _steps(views, state):
        moment = _moment(time, progress, config, state)
        state.stepped_until = time
        if not moment.phase.idle:
            for one in views:
                _judge_metric(one, moment, models[one.metric.name], config)
        signs = _signs(views, config)
        least = _COMPARED_SHARE * config.continuity.threshold_seconds
        loss = partial(progress.loss, time=time, least_seconds=min(_LEAST_SECONDS, least))
        streaks = weigh(signs, moment, loss, config)
        _clear(job, time, config, state)
        if len(job.nodes) >= config.smallest_job and not moment.phase.idle:
            gone = _gone(absent, time, config)
            known = moment.phase.known
            new = raise_new(job.job_id, now, [*gone, *streaks], config, state, known=known)
            explain_all(new, time, streaks, frames, config, state)
    for one in views:
        one.memory.judged_until = state.stepped_until
    return streaks


def raise_new(
    job_id: str,
    now: float,
    streaks: list[Streak],
    config: DetectorConfig,
    state: JobState,
    *,
    known: bool,
) -> list[Finding]:
    """Name nodes: the strongest first where progress is known, else in metric priority."""
    if known:
        recent = [*state.recent, *state.standing.values()]
        symptoms = config.peerwatch.symptoms
        new = raise_strongest(job_id, now, state.standing, recent, streaks, symptoms=symptoms)
    else:
        new = raise_findings(job_id, now, state.standing, streaks)
    state.standing |= {finding.node: finding for finding in new}
    kept = [one for one in state.recent if now - one.raised <= _REMEMBER_SECONDS]
    state.recent = [*kept, *new]
    return new


def explain_all(
    findings: Collection[Finding],
    time: int,
    streaks: list[Streak],
    frames: dict[str, JobFrame],
    config: DetectorConfig,
    state: JobState,
    *,
    before_restart: bool = False,
) -> None:
    """Keep with each finding what speaks for it now.

    Parameters
    ----------
    findings
        To explain; all stand.
    time
        Unix time; no later sample is used.
    streaks, frames
        All that run, and the samples by metric.
    config, state
        Settings; the state is changed in place.
    before_restart
        Whether an earlier process raised them.
    """
    if not findings:
        return
    metrics = {metric.name: metric for metric in config.detection_metrics()}
    seconds = config.peerwatch.level_seconds
    for finding in findings:
        evidence = [
            measure(one, metrics[one.metric], frames[one.metric], time, seconds)
            for one in streaks
            if one.node == finding.node and one.metric in frames
        ]
        absent = finding.metric == ABSENT
        needed = (config.absent if absent else config.continuity).threshold_seconds
        course = _course(finding.since, time, config, state)
        state.explanations[finding] = explain(
            finding, evidence, course, time, needed, before_restart=before_restart
        )


def _course(since: float, time: int, config: DetectorConfig, state: JobState) -> JobCourse:
    """Return what the job does, by the last step that was judged."""
    if state.progress is None or not state.phase.known:
        return JobCourse("unknown")
    if state.waiting_since is not None:
        waits = state.stepped_until - state.idle_seconds - state.waiting_since
        return JobCourse("waits", waits_seconds=waits)
    if state.phase.idle:
        return JobCourse("rests")
    least = min(_LEAST_SECONDS, _COMPARED_SHARE * config.continuity.threshold_seconds)
    loss = state.progress.loss(since, time, least)
    if not np.isfinite(loss):
        return JobCourse("trains")
    return JobCourse("slowed" if loss >= config.peerwatch.progress_loss else "trains", loss)


def _gone(absent: list[Streak], time: int, config: DetectorConfig) -> list[Streak]:
    """Return the absent nodes as they stood at a step."""
    return [
        replace(streak, seconds=time - streak.since)
        for streak in absent
        if time - streak.since >= config.absent.after_seconds
    ]


def _progress(config: DetectorConfig, state: JobState) -> Progress:
    if state.progress is None:
        baseline = config.similarity.baseline_seconds or 2 * _LEAST_SECONDS
        state.progress = Progress(config.peerwatch, min(_LEAST_SECONDS, baseline // 2))
    return state.progress


def _steps(views: list[View], state: JobState) -> range:
    """Return the times of the steps that are not judged yet."""
    times = [one.frame.times for one in views if len(one.frame.times)]
    if not times:
        return range(0)
    first = max(int(min(part[0] for part in times)), state.stepped_until + 1)
    last = int(max(part[-1] for part in times))
    return range(-(-first // STEP) * STEP, last + 1, STEP)


def _moment(time: int, progress: Progress, config: DetectorConfig, state: JobState) -> Moment:
    """Move the job's clock on to the next step."""
    phase = progress.phase(time) if config.peerwatch.progress else Phase()
    if phase.idle:
        state.idle_seconds += STEP
    state.phase = phase
    clock = time - state.idle_seconds
    if not phase.waiting:
        state.waiting_since = None
    elif state.waiting_since is None:
        state.waiting_since = clock - _NOTICED_AFTER
    return Moment(time, clock, phase, state.waiting_since)


def _judge_metric(one: View, moment: Moment, model: Model, config: DetectorConfig) -> None:
    """Take one metric through comparison, candidates, streaks and learning."""
    memory, settings = one.memory, config.peerwatch
    columns = one.columns(moment.time, settings.level_seconds)
    usual = memory.baseline.usual(moment.time)
    deviation = deviate(
        one.units[:, columns], one.middle[columns], usual, one.metric, one.scale, settings
    )
    evident = deviation.spreads >= settings.threshold
    if settings.embedding:
        evident |= _unlike(one, moment.time, model, config)
    # While the ranks wait, levels are others than usual for all; but what is weak must be plain.
    late = moment.waits_long(settings.patience_seconds)
    if settings.away and (late or not moment.phase.waiting):
        evident &= deviation.away
    known = np.isfinite(deviation.effects).reshape(len(one.frame.nodes), len(one.gpus))
    judged: Mask = np.asarray(known.any(axis=1))
    for sign, trail in ((1, memory.high), (-1, memory.low)):
        found = _candidates(one, deviation, evident, sign, moment, config)
        trail.update(moment, found, judged)
    _learn(one, moment.time, deviation, usual, settings.collapsed_share)


def _candidates(
    one: View,
    deviation: Deviation,
    evident: Mask,
    sign: int,
    moment: Moment,
    config: DetectorConfig,
) -> Side:
    nodes, settings = len(one.frame.nodes), config.peerwatch
    harmful = one.metric.direction in ("both", "high" if sign > 0 else "low")
    tells = not deviation.collapsed or (one.metric.direction == "high" and sign > 0)
    if not harmful or not tells:
        return Side(np.zeros(nodes), np.full(nodes, -1), common=False)
    largest = max(1.0, config.similarity.largest_share * nodes)
    if not settings.common_cause:
        largest = np.inf
    found = side(deviation, evident, (nodes, len(one.gpus)), sign, largest)
    late = settings.fast and moment.waits_long(settings.patience_seconds)
    return Side(found.strength / settings.relaxed, found.gpu, found.common) if late else found


def _unlike(one: View, time: int, model: Model, config: DetectorConfig) -> Mask:
    """Mark the units of nodes whose embedded window is unlike those of their peers."""
    length = config.window_length
    columns = one.columns(time, length + config.fill_limit_seconds)
    filled = fill_nearest(one.frame.values[:, columns], config.fill_limit_seconds)[:, -length:]
    present: Mask = np.isfinite(filled).all(axis=1) & (filled.shape[1] == length)
    if present.sum() < 2:
        return np.zeros(len(one.units), dtype=bool)
    points = model.embed(min_max(filled[present], one.metric.bounds))
    embeddings = np.zeros((1, len(present), points.shape[1]), dtype=np.float32)
    embeddings[0, present] = points
    low, high = one.metric.bounds
    effect = one.metric.smallest_effect / (high - low) * np.sqrt(length)
    floor = np.array([[effect * (float(present.sum()) - 1)]])
    score = peer_score(distance_sums(embeddings, present[None]), floor)[0]
    over: Mask = np.nan_to_num(score) >= config.similarity_threshold
    return np.repeat(over, len(one.gpus))


def _learn(
    one: View, time: int, deviation: Deviation, usual: Usual, collapsed_share: float
) -> None:
    """Add the newest sample that is not learned yet to the past; it may have come late."""
    baseline = one.memory.baseline
    columns = one.columns(time, _LATEST_SECONDS)
    known = np.flatnonzero(np.isfinite(one.middle[columns]))
    if not len(known):
        return
    column = columns.start + int(known[-1])
    if one.frame.times[column] <= baseline.learned_until:
        return
    baseline.learned_until = float(one.frame.times[column])
    level = float(one.middle[column])
    offset = one.scale.offset(one.units[:, column], level)
    healthy = deviation.healthy & (not level < collapsed_share * usual.level)
    baseline.learn(time, level, offset, healthy)


def _signs(views: list[View], config: DetectorConfig) -> list[Sign]:
    signs: list[Sign] = []
    for one in views:
        common = one.memory.high.common or one.memory.low.common
        for trail, high in ((one.memory.high, True), (one.memory.low, False)):
            found, left_out = collect_signs(
                trail,
                one.metric,
                one.rank,
                one.gpus,
                high=high,
                common_cause=config.peerwatch.common_cause,
            )
            signs += found
            common |= left_out
        one.memory.common_cause = common
    return signs


def _clear(job: Job, time: int, config: DetectorConfig, state: JobState) -> None:
    """Let findings fall whose nodes have been quiet for long enough."""
    if not state.standing:
        return
    quiet: dict[str, float] = {}
    for memory in state.metrics.values():
        for streaks in memory.streaks:
            for node in state.standing.keys() & set(streaks.nodes):
                seconds = float(streaks.quiet[streaks.nodes.index(node)])
                quiet[node] = min(quiet.get(node, np.inf), seconds)
    spoke = state.last_silent.keys() | job.silent_since.keys()
    # What was quiet before a fault began says nothing about its end.
    heard = {
        node: min(seconds, time - state.standing[node].since)
        for node, seconds in quiet.items()
        if node not in spoke
    }
    state.standing = still_standing(state.standing, heard, config.continuity.clear_seconds)
