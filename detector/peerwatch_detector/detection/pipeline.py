"""One cycle of one training job, in the order of the paper's figure.

Read (already in the rings), preprocess, embed, similarity, candidates, continuity, checks,
findings. Everything here is a function of arrays and of the job's ``JobState``; host, network
and clock stay outside. What is decided at a step depends on samples up to that step only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.checks.absent import absent_seconds
from peerwatch_detector.detection.continuity import DeviationTracker
from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.explanation.record import explain_all
from peerwatch_detector.detection.findings import (
    ABSENT,
    Deviation,
    Finding,
    fault_scores,
    still_standing,
)
from peerwatch_detector.detection.gpu_attribution import deviating_gpu
from peerwatch_detector.detection.methods.minder import method as minder
from peerwatch_detector.detection.methods.peerwatch.method import look, missed, raise_new, walk
from peerwatch_detector.detection.methods.peerwatch.views import View, view
from peerwatch_detector.detection.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.detection.roles import groups_of
from peerwatch_detector.detection.similarity import Mask, distance_sums, normal_score
from peerwatch_detector.detection.state import JobState, MetricState, new_metric_state
from peerwatch_detector.detection.steps import Ticks, in_ticks, with_peaks
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.detection.zscores import outliers, zscores
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model

__all__ = ["Detection", "JobState", "MetricState", "detect", "deviating_gpu", "new_metric_state"]


@dataclass(frozen=True, slots=True)
class Detection:
    """What a cycle says about one job.

    Parameters
    ----------
    job
        The job and its nodes.
    time
        Unix time up to which samples were evaluated.
    comparable
        False with too few nodes, or while too many of them deviate at once in some metric, which is
        left out then.
    findings, deviations, fault_scores
        See ``scores``.
    normal_scores, zscores, continuity
        Per metric, per node, the newest values; NaN where the node could not be evaluated.
    coverage
        Per metric, the share of the nodes with a sample in the newest window.
    explanations
        Of every finding.
    """

    job: Job
    time: float
    comparable: bool
    findings: tuple[Finding, ...]
    deviations: tuple[Deviation, ...]
    fault_scores: dict[str, float]
    normal_scores: dict[str, dict[str, float]]
    zscores: dict[str, dict[str, float]]
    continuity: dict[str, dict[str, float]]
    coverage: dict[str, float]
    explanations: dict[Finding, Explanation] = field(default_factory=dict)


def detect(
    job: Job,
    frames: Mapping[str, JobFrame],
    models: dict[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
) -> Detection:
    """Evaluate one job on the samples that came since the last cycle.

    Parameters
    ----------
    job
        The job as discovered.
    frames
        By metric; each begins early enough for the first new window to be whole.
    models
        By metric.
    config
        Settings.
    state
        Changed in place; its times are in ticks (``steps``).
    now
        Unix time, for silence and for the findings' ``raised``.
    """
    ticks = Ticks.of(config.step_seconds)
    metrics = config.detection_metrics()
    compared = _comparable(frames, config)
    moment = now * ticks.per_second
    detection = _detect(ticks.job(job), metrics, compared, models, in_ticks(config), state, moment)
    return _in_seconds(replace(detection, job=job), ticks)


def look_ahead(
    job: Job,
    frames: Mapping[str, JobFrame],
    models: dict[str, Model],
    config: DetectorConfig,
    state: JobState,
) -> None:
    """Compare some metrics of a job before all are there, with method ``peerwatch``.

    ``detect`` goes on from there: of these metrics it needs only what is new, and samples of steps
    at which somebody was a candidate. Those that tell what the job does come first.

    Parameters
    ----------
    job, frames, models, config, state
        As for ``detect``.
    """
    compared, config = _comparable(frames, config), in_ticks(config)
    views = _views(job, _ranked(config.detection_metrics(), compared), compared, config, state)
    look(job, views, models, config, state)


def _comparable(frames: Mapping[str, JobFrame], config: DetectorConfig) -> dict[str, JobFrame]:
    """Return the frames as they are compared, by metric, times in ticks."""
    ticks, step = Ticks.of(config.step_seconds), config.step_seconds
    known = [metric for metric in config.detection_metrics() if metric.name in frames]

    def comparable(metric: MetricConfig) -> JobFrame:
        return ticks.frame(with_peaks(frames[metric.name], metric.peak_seconds, step))

    threads = worthwhile(config.scheduling.detection_threads, frames.values())
    found = each(comparable, known, threads)
    return {metric.name: frame for metric, frame in zip(known, found, strict=True)}


def _ranked(
    metrics: Iterable[MetricConfig], frames: Mapping[str, JobFrame]
) -> list[tuple[int, MetricConfig]]:
    # The rank counts metrics without data too: it must not change when one comes or goes.
    priority = enumerate(metrics, start=1)
    return [(rank, metric) for rank, metric in priority if metric.name in frames]


def _follow(
    job: Job,
    ranked: list[tuple[int, MetricConfig]],
    frames: Mapping[str, JobFrame],
    config: DetectorConfig,
    state: JobState,
) -> None:
    """Let what is remembered of the metrics follow the job's nodes."""
    roles = groups_of(job, config)
    for _, metric in ranked:
        memory = state.metrics.setdefault(metric.name, new_metric_state(config))
        frame = frames[metric.name]
        per_gpu = config.peerwatch.per_gpu and frame.gpu_values is not None
        memory.follow(frame.nodes, frame.gpus if per_gpu else (), roles)


def _views(
    job: Job,
    ranked: list[tuple[int, MetricConfig]],
    frames: Mapping[str, JobFrame],
    config: DetectorConfig,
    state: JobState,
) -> list[View]:
    _follow(job, ranked, frames, config, state)
    roles = groups_of(job, config)

    def prepared(one: tuple[int, MetricConfig]) -> View:
        rank, metric = one
        name = metric.name
        return view(frames[name], metric, rank, config, state.metrics[name], roles)

    return each(prepared, ranked, worthwhile(config.scheduling.detection_threads, frames.values()))


def _in_seconds(detection: Detection, ticks: Ticks) -> Detection:
    return replace(
        detection,
        time=detection.time / ticks.per_second,
        findings=tuple(ticks.finding_in_seconds(one) for one in detection.findings),
        deviations=tuple(ticks.deviation_in_seconds(one) for one in detection.deviations),
        continuity={
            metric: ticks.in_seconds(lengths) for metric, lengths in detection.continuity.items()
        },
        explanations={
            ticks.finding_in_seconds(one): why for one, why in detection.explanations.items()
        },
    )


def _detect(
    job: Job,
    metrics: Iterable[MetricConfig],
    frames: dict[str, JobFrame],
    models: dict[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
) -> Detection:
    """Evaluate one job; all times are in ticks."""
    inherited = set(state.standing.values()) - state.explanations.keys()
    ranked = _ranked(metrics, frames)
    threads = worthwhile(config.scheduling.detection_threads, frames.values())
    _follow(job, ranked, frames, config, state)

    def score(metric: MetricConfig) -> None:
        name = metric.name
        _score_windows(frames[name], metric, models[name], config, state.metrics[name])

    if config.method != "minder":
        each(score, [metric for _, metric in ranked], threads)
    silence = absent_seconds(job.absent_since, len(job.nodes), now, config.absent.after_seconds)
    # The papers' methods know no absent nodes: Minder fills what a silent node lacks.
    own = config.method == "peerwatch" and config.absent.enabled
    absent = _absent_deviations(silence, config, now) if own else []
    enough = len(job.nodes) >= config.min_nodes
    if config.method == "peerwatch":
        views = _views(job, ranked, frames, config, state)
        deviations = walk(job, views, models, config, state, now, absent)
        absent = missed(absent, config, state)
        ready = absent
    elif config.method == "minder":
        deviations = minder.walk(job, ranked, frames, models, config, state, now)
        ready = []
    else:
        deviations = []
        for rank, metric in ranked:
            deviations += _metric_deviations(metric, rank, frames[metric.name], config, state)
        ready = deviations if enough else []
    state.last_absent |= dict.fromkeys(job.absent_since, now)
    state.standing = still_standing(
        state.standing, _quiet(job, state, silence, now), config.continuity.clear_seconds
    )
    known = state.progress is not None and state.progress.known
    raise_new(job.job_id, now, ready, config, state, known=known)
    evaluated = [metric for _, metric in ranked]
    newest = max((float(frames[m.name].times[-1]) for m in evaluated), default=now)
    _explain(job, inherited, int(newest), [*absent, *deviations], frames, config, state)
    common = any(memory.common_cause for memory in state.metrics.values())
    return _detection(job, evaluated, [*absent, *deviations], enough and not common, state, newest)


def _explain(
    job: Job,
    inherited: set[Finding],
    newest: int,
    deviations: list[Deviation],
    frames: dict[str, JobFrame],
    config: DetectorConfig,
    state: JobState,
) -> None:
    """Explain what was raised after the last step, and what stood before this process began."""
    standing = set(state.standing.values())
    new = standing - state.explanations.keys() - inherited
    older = standing & inherited
    explain_all(job, new, newest, deviations, frames, config, state)
    explain_all(job, older, newest, deviations, frames, config, state, before_restart=True)
    state.explanations = {one: why for one, why in state.explanations.items() if one in standing}


def _score_windows(
    frame: JobFrame,
    metric: MetricConfig,
    model: Model,
    config: DetectorConfig,
    memory: MetricState,
) -> None:
    """Embed and score one metric's new windows; of method peerwatch only the newest is shown."""
    stepwise = config.method == "peerwatch"
    limit = int(config.fill_limit_seconds)
    newest = config.window_length + limit if stepwise else 0
    filled = fill_nearest(frame.values[:, -newest:], limit)
    ends = frame.times[-filled.shape[1] :][config.window_length - 1 :].astype(np.int64)
    new = ends == ends[-1:] if stepwise else ends > memory.evaluated_until
    cut = windows(filled, config.window_length)[new]
    if not len(cut):
        return
    present: Mask = np.asarray(np.isfinite(cut).all(axis=2))
    sums = distance_sums(_embed(cut, present, metric, model), present)
    # The paper has no other smoothing than the window, so neither have the additions.
    levels = np.where(present, cut.mean(axis=2, dtype=np.float64), np.nan)
    normal, z = normal_score(sums), zscores(levels)
    if not stepwise:
        outlying = outliers(z, config.zscore.threshold, metric.direction)
        _follow_zscore(ends[new], outlying, present, memory)
        memory.evaluated_until = int(ends[-1])
    memory.normal, memory.z = normal[-1], z[-1]
    memory.coverage = float(present[-1].mean())


def _embed(
    cut: NDArray[np.float32], present: Mask, metric: MetricConfig, model: Model
) -> NDArray[np.float32]:
    """Embed the present windows; shape (n_windows, n_nodes, n_features), 0 where not present."""
    points = model.embed(min_max(cut[present], metric.bounds))
    embeddings = np.zeros((*present.shape, points.shape[1]), dtype=np.float32)
    embeddings[present] = points
    return embeddings


def _follow_zscore(
    ends: NDArray[np.int64], outlying: Mask, present: Mask, memory: MetricState
) -> None:
    for step, end in enumerate(ends):
        memory.zscore.update(float(end), outlying[step], present[step])


def _absent_deviations(
    silence: dict[str, float], config: DetectorConfig, now: float
) -> list[Deviation]:
    needed = config.absent.threshold_seconds
    return [
        Deviation(
            node, "", ABSENT, ABSENT, 0, now - seconds, seconds, needed, seconds / needed, 0.0
        )
        for node, seconds in silence.items()
    ]


def _metric_deviations(
    metric: MetricConfig,
    rank: int,
    frame: JobFrame,
    config: DetectorConfig,
    state: JobState,
) -> list[Deviation]:
    memory = state.metrics[metric.name]
    lengths, since = memory.zscore.seconds(), memory.zscore.start
    return [
        Deviation(
            memory.zscore.nodes[index],
            deviating_gpu(frame, int(index), metric),
            metric.name,
            "zscore",
            rank,
            float(since[index]),
            float(lengths[index]),
            config.zscore.period_seconds,
            float(np.nan_to_num(abs(memory.z[index]))),
            float(memory.zscore.quiet[index]),
        )
        for index in np.flatnonzero(np.isfinite(since))
    ]


def _quiet(job: Job, state: JobState, silence: dict[str, float], now: float) -> dict[str, float]:
    """Per flagged node that can be evaluated, the shortest quiet time over metrics and methods."""
    # A silent node tells nothing about itself, so what was found stands.
    quiet: dict[str, float] = {}
    for node in state.standing.keys() - job.absent_since.keys() - silence.keys():
        # A node that is back was not quiet before.
        times = [now - state.last_absent[node]] if node in state.last_absent else []
        for memory in state.metrics.values():
            known = [one for one in memory.deviations if node in one.nodes]
            times += [float(one.quiet[one.nodes.index(node)]) for one in known]
        # One that left the job is nobody's fault any more.
        if times or node not in job.nodes:
            quiet[node] = min(times, default=np.inf)
    return quiet


def _detection(
    job: Job,
    metrics: list[MetricConfig],
    deviations: list[Deviation],
    comparable: bool,
    state: JobState,
    time: float,
) -> Detection:
    memories = {metric.name: state.metrics[metric.name] for metric in metrics}
    return Detection(
        job=job,
        time=time,
        comparable=comparable,
        findings=tuple(state.standing.values()),
        deviations=tuple(deviations),
        fault_scores=fault_scores(job.nodes, state.standing, deviations),
        normal_scores={n: _by_node(m.similarity, m.normal) for n, m in memories.items()},
        zscores={n: _by_node(m.zscore, m.z) for n, m in memories.items()},
        continuity={n: _by_node(m.similarity, m.continuity()) for n, m in memories.items()},
        coverage={n: m.coverage for n, m in memories.items()},
        explanations=dict(state.explanations),
    )


def _by_node(deviations: DeviationTracker, values: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(deviations.nodes, values.tolist(), strict=True))
