"""One cycle of one training job, in the order of the paper's figure.

Read (already in the rings), preprocess, embed, similarity, candidates, continuity, checks,
findings. Everything here is a function of arrays and of the job's ``JobState``; host, network
and clock stay outside. What is decided at a step depends on samples up to that step only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.baseline import Baseline
from peerwatch_detector.checks.absent import absent_seconds
from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.continuity import Streaks
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model
from peerwatch_detector.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.scores import (
    ABSENT,
    Finding,
    Streak,
    fault_scores,
    raise_findings,
    still_standing,
)
from peerwatch_detector.similarity import (
    Mask,
    Scores,
    distance_sums,
    leave_one_out_median,
    normal_score,
    peer_score,
    single_candidates,
)
from peerwatch_detector.zscore import outliers, toward, zscores


@dataclass(slots=True)
class MetricState:
    """What one metric of one job remembers between cycles."""

    similarity: Streaks
    zscore: Streaks
    baseline: Baseline
    judged_until: int = 0
    normal: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    z: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    peak: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    coverage: float = 0.0
    common_cause: bool = False


@dataclass(slots=True)
class JobState:
    """What one job remembers between cycles: streaks, findings, who was silent when."""

    metrics: dict[str, MetricState] = field(default_factory=dict)
    standing: dict[str, Finding] = field(default_factory=dict)
    last_silent: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a cycle says about one job.

    Parameters
    ----------
    job
        The job and its nodes.
    time
        Unix time up to which samples were judged.
    comparable
        False with too few nodes, or while too many of them deviate at once in some metric, which is
        left out then.
    findings, streaks, fault_scores
        See ``scores``.
    normal_scores, zscores, continuity
        Per metric, per node, the newest values; NaN where the node could not be judged.
    coverage
        Per metric, the share of the nodes with a sample in the newest window.
    """

    job: Job
    time: float
    comparable: bool
    findings: tuple[Finding, ...]
    streaks: tuple[Streak, ...]
    fault_scores: dict[str, float]
    normal_scores: dict[str, dict[str, float]]
    zscores: dict[str, dict[str, float]]
    continuity: dict[str, dict[str, float]]
    coverage: dict[str, float]


def judge(
    job: Job,
    frames: dict[str, JobFrame],
    models: dict[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
) -> Judgement:
    """Judge one job on the samples that came since the last cycle.

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
        Changed in place.
    now
        Unix time, for silence and for the findings' ``raised``.
    """
    # The rank counts metrics without data too: it must not change when one comes or goes.
    priority = enumerate(config.detection_metrics(), start=1)
    ranked = [(rank, metric) for rank, metric in priority if metric.name in frames]
    for _, metric in ranked:
        _judge_metric(frames[metric.name], metric, models[metric.name], config, state)
    silence = absent_seconds(job.silent_since, len(job.nodes), now, config.absent.after_seconds)
    streaks = _absent_streaks(silence, config, now)
    for rank, metric in ranked:
        streaks += _metric_streaks(metric, rank, frames[metric.name], config, state)
    enough = len(job.nodes) >= config.smallest_job
    common = any(memory.common_cause for memory in state.metrics.values())
    state.last_silent |= dict.fromkeys(job.silent_since, now)
    state.standing = still_standing(
        state.standing, _quiet(job, state, silence, now), config.continuity.clear_seconds
    )
    # Too few nodes cannot say who is unlike the others, but still who is gone. A metric in which
    # too many deviate at once has left those windows out already.
    ready = streaks if enough else [s for s in streaks if s.metric == ABSENT]
    for finding in raise_findings(job.job_id, now, state.standing, ready):
        state.standing[finding.node] = finding
    metrics = [metric for _, metric in ranked]
    return _judgement(job, metrics, streaks, enough and not common, state, now)


def _judge_metric(
    frame: JobFrame,
    metric: MetricConfig,
    model: Model,
    config: DetectorConfig,
    state: JobState,
) -> None:
    """Take one metric's new windows through embedding, scores and streaks."""
    memory = state.metrics.setdefault(metric.name, new_metric_state(config))
    _keep_values(frame.nodes, memory)
    memory.similarity.follow(frame.nodes)
    memory.zscore.follow(frame.nodes)
    memory.baseline.follow(frame.nodes)
    lookahead = config.fill_limit_seconds if config.method == "minder" else 0
    filled = fill_nearest(frame.values, config.fill_limit_seconds, lookahead=lookahead)
    ends = frame.times[config.window_length - 1 :].astype(np.int64)
    new = ends > memory.judged_until
    cut = windows(filled, config.window_length)[new]
    if not len(cut):
        return
    present: Mask = np.asarray(np.isfinite(cut).all(axis=2))
    sums = distance_sums(_embed(cut, present, metric, model), present)
    # The paper has no other smoothing than the window, so neither have the additions.
    levels = np.where(present, cut.mean(axis=2, dtype=np.float64), np.nan)
    normal, z = normal_score(sums), zscores(levels)
    if config.method == "peerwatch":
        _judge_against_own_past(ends[new], sums, levels, z, metric, config, memory)
    else:
        similar = single_candidates(normal, config.similarity_threshold)
        outlying = outliers(z, config.zscore.threshold, metric.direction)
        _follow(ends[new], similar & (config.method == "minder"), normal, present, memory)
        _follow_zscore(ends[new], outlying & (config.method == "zscore"), present, memory)
    memory.normal, memory.z = normal[-1], z[-1]
    memory.coverage = float(present[-1].mean())
    memory.judged_until = int(ends[-1])


def _judge_against_own_past(
    ends: NDArray[np.int64],
    sums: Scores,
    levels: Scores,
    z: Scores,
    metric: MetricConfig,
    config: DetectorConfig,
    memory: MetricState,
) -> None:
    """Judge windows by the method ``peerwatch``: unlike the peers, more than it always was.

    A candidate is also further from its peers than the smallest effect, in the direction that
    harms. Windows are taken one baseline period at a time, so that the outcome does not depend
    on how the cycles fall.
    """
    present = np.isfinite(levels)
    count = np.maximum(present.sum(axis=1, keepdims=True), 2).astype(np.float64)
    low, high = metric.bounds
    effect = metric.smallest_effect / (high - low) * np.sqrt(config.window_length)
    score = peer_score(sums, effect * (count - 1))
    residual = levels - leave_one_out_median(levels)
    for part in memory.baseline.periods(ends):
        offset = memory.baseline.offset(int(ends[part][0]))
        deviation = toward(residual[part] - offset, metric.direction)
        with np.errstate(invalid="ignore"):
            matters = deviation >= metric.smallest_effect
            candidates = matters & (score[part] >= config.similarity_threshold)
            outlying = matters & (np.abs(z[part]) > config.zscore.threshold)
        largest = np.maximum(1, config.similarity.largest_share * count[part])
        # Of many that deviate alike some fall just short of the threshold; the rest would be named.
        suspects = matters & (score[part] >= config.similarity_threshold / 2)
        common = suspects.sum(axis=1, keepdims=True) > largest
        memory.common_cause = bool(common[-1, 0])
        known = present[part] & np.isfinite(residual[part]) & ~common
        memory.baseline.learn(ends[part], residual[part], suspects)
        _follow(ends[part], candidates & ~common, score[part], known, memory)
        _follow_zscore(ends[part], outlying & ~common, known, memory)


def _embed(
    cut: NDArray[np.float32], present: Mask, metric: MetricConfig, model: Model
) -> NDArray[np.float32]:
    """Embed the present windows; shape (n_windows, n_nodes, n_features), 0 where not present."""
    points = model.embed(min_max(cut[present], metric.bounds))
    embeddings = np.zeros((*present.shape, points.shape[1]), dtype=np.float32)
    embeddings[present] = points
    return embeddings


def _keep_values(nodes: tuple[str, ...], memory: MetricState) -> None:
    """Carry the newest values of the nodes that stay over to their new places."""
    old = memory.similarity.nodes
    if nodes == old:
        return
    for name in ("normal", "z", "peak"):
        values = dict(zip(old, getattr(memory, name), strict=True))
        setattr(memory, name, np.array([values.get(node, np.nan) for node in nodes]))


def _follow(
    ends: NDArray[np.int64], candidates: Mask, scores: Scores, present: Mask, memory: MetricState
) -> None:
    for step, end in enumerate(ends):
        memory.similarity.update(float(end), candidates[step], present[step])
        memory.peak = np.where(candidates[step], scores[step], memory.peak)


def _follow_zscore(
    ends: NDArray[np.int64], outlying: Mask, present: Mask, memory: MetricState
) -> None:
    for step, end in enumerate(ends):
        memory.zscore.update(float(end), outlying[step], present[step])


def new_metric_state(config: DetectorConfig) -> MetricState:
    """Return the empty memory of a metric that is seen for the first time."""
    gap = 0.0 if config.method == "minder" else config.continuity.gap_seconds
    return MetricState(Streaks(gap), Streaks(gap), Baseline(config.similarity.baseline_seconds))


def _absent_streaks(silence: dict[str, float], config: DetectorConfig, now: float) -> list[Streak]:
    needed = config.absent.threshold_seconds
    return [
        Streak(node, "", ABSENT, ABSENT, 0, now - seconds, seconds, needed, seconds / needed, 0.0)
        for node, seconds in silence.items()
    ]


def _metric_streaks(
    metric: MetricConfig,
    rank: int,
    frame: JobFrame,
    config: DetectorConfig,
    state: JobState,
) -> list[Streak]:
    memory = state.metrics[metric.name]
    found = []
    for streaks, method, needed in (
        (memory.similarity, config.method, config.continuity.threshold_seconds),
        (memory.zscore, "zscore", config.zscore.period_seconds),
    ):
        lengths = streaks.seconds()
        for index in np.flatnonzero(np.isfinite(streaks.start)):
            score = memory.peak[index] if method != "zscore" else abs(memory.z[index])
            found.append(
                Streak(
                    streaks.nodes[index],
                    guilty_gpu(frame, int(index), metric),
                    metric.name,
                    method,
                    rank,
                    float(streaks.start[index]),
                    float(lengths[index]),
                    needed,
                    float(np.nan_to_num(score)),
                    float(streaks.quiet[index]),
                )
            )
    return found


def guilty_gpu(frame: JobFrame, node: int, metric: MetricConfig) -> str:
    """Return the GPU that alone carries a node's deviation, or "" if there is none.

    One GPU is named if it lies further than the smallest effect from the median of all the job's
    GPUs, and at least three times as far as the node's second worst.
    """
    if frame.gpu_values is None or len(frame.gpus) < 2:
        return ""
    recent = frame.gpu_values[:, :, -30:]
    with np.errstate(all="ignore"):
        known = np.isfinite(recent)
        levels = np.where(known.any(axis=2), np.where(known, recent, 0).sum(axis=2), np.nan)
        levels = levels / np.maximum(known.sum(axis=2), 1)
    if not np.isfinite(levels).any():
        return ""
    away = np.nan_to_num(np.abs(levels[node] - np.nanmedian(levels)))
    order = np.argsort(away)
    worst, second = away[order[-1]], away[order[-2]]
    return frame.gpus[order[-1]] if worst > max(metric.smallest_effect, 3 * second) else ""


def _quiet(job: Job, state: JobState, silence: dict[str, float], now: float) -> dict[str, float]:
    """Per node that can be judged, the shortest quiet time over all metrics and methods."""
    # A node that left the job is nobody's fault any more; one that is back was not quiet before.
    quiet = {node: np.inf for node in state.standing if node not in job.nodes}
    quiet |= {node: now - last for node, last in state.last_silent.items()}
    for memory in state.metrics.values():
        for streaks in (memory.similarity, memory.zscore):
            for node, seconds in zip(streaks.nodes, streaks.quiet, strict=True):
                quiet[node] = min(quiet.get(node, np.inf), float(seconds))
    # A silent node tells nothing about itself, so what was found stands.
    return {
        node: seconds
        for node, seconds in quiet.items()
        if node not in job.silent_since and node not in silence
    }


def _judgement(
    job: Job,
    metrics: list[MetricConfig],
    streaks: list[Streak],
    comparable: bool,
    state: JobState,
    now: float,
) -> Judgement:
    memories = {metric.name: state.metrics[metric.name] for metric in metrics}
    judged = max((memory.judged_until for memory in memories.values()), default=0)
    return Judgement(
        job=job,
        time=float(judged) or now,
        comparable=comparable,
        findings=tuple(state.standing.values()),
        streaks=tuple(streaks),
        fault_scores=fault_scores(job.nodes, state.standing, streaks),
        normal_scores={n: _by_node(m.similarity, m.normal) for n, m in memories.items()},
        zscores={n: _by_node(m.zscore, m.z) for n, m in memories.items()},
        continuity={n: _by_node(m.similarity, m.similarity.seconds()) for n, m in memories.items()},
        coverage={n: m.coverage for n, m in memories.items()},
    )


def _by_node(streaks: Streaks, values: NDArray[np.float64]) -> dict[str, float]:
    return {node: float(value) for node, value in zip(streaks.nodes, values, strict=True)}
