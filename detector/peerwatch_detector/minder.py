"""Method ``minder``: the algorithm of the paper (NSDI'25, section 4), window by window.

Every window of every metric has at most one candidate, the node with the highest normal score if
that is over the threshold. A node that stays the candidate for the continuity threshold is named,
by the first metric in the priority that has such a node; the metrics after it are not asked then.

The paper calls its detection every eight minutes on the last fifteen; here each window is judged
once, when it comes. The nearest sample stands for a missing one, yet never one from after the
window, so that a window looks the same whenever it is judged. The paper compares machines, so a
metric of GPUs is their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.errors import ModelError
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.guilty import guilty_gpu
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import INTEGRATED, Model
from peerwatch_detector.models.identity import Identity
from peerwatch_detector.models.integrated import IntegratedLstmVae
from peerwatch_detector.preprocess import fill_nearest, min_max, windows
from peerwatch_detector.scores import Finding, Streak, still_standing
from peerwatch_detector.similarity import (
    Distance,
    Mask,
    Scores,
    distance_sums,
    normal_score,
    single_candidates,
)
from peerwatch_detector.state import JobState, MetricState
from peerwatch_detector.zscore import zscores

Ranked = Sequence[tuple[int, MetricConfig]]

# Distances between single metrics, where the job is compared by another one over all of them.
_OF_ONE_METRIC: dict[Distance, Distance] = {"mahalanobis": "euclidean"}


@dataclass(frozen=True, slots=True)
class Part:
    """One metric's new windows.

    Parameters
    ----------
    rank, metric, frame, memory
        Whose windows.
    ends
        Unix times of the windows' last samples, shape (n_windows,).
    points
        What nodes are compared by, shape (n_windows, n_nodes, n_features).
    present
        Which nodes have a point, shape (n_windows, n_nodes).
    own
        Normal scores by this metric alone, shape (n_windows, n_nodes).
    scores
        Normal scores that candidates are chosen by: the metric's own, or the joined.
    candidates
        Shape (n_windows, n_nodes), at most one a window.
    """

    rank: int
    metric: MetricConfig
    frame: JobFrame
    memory: MetricState
    ends: NDArray[np.int64]
    points: NDArray[np.float32]
    present: Mask
    own: Scores
    scores: Scores
    candidates: Mask


def walk(
    job: Job,
    ranked: Ranked,
    frames: Mapping[str, JobFrame],
    models: Mapping[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
) -> list[Streak]:
    """Judge all new windows of a job.

    Parameters
    ----------
    job
        The job as discovered.
    ranked
        The metrics with their places in the priority.
    frames, models
        By metric; the model of all metrics under ``INTEGRATED``.
    config
        Settings.
    state
        Changed in place, findings included.
    now
        Unix time, for the findings' ``raised``.

    Returns
    -------
    list[Streak]
        The running streaks after the last window.
    """
    parts = [
        _part(rank, metric, frames[metric.name], models[metric.name], config, state)
        for rank, metric in ranked
    ]
    if config.minder.join != "per_metric":
        parts = _joined(parts, models.get(INTEGRATED), config)
    for time in sorted({int(end) for part in parts for end in part.ends}):
        for part in parts:
            _follow(part, time)
        _clear(job, time, config, state)
        if len(job.nodes) >= config.smallest_job:
            _name(job.job_id, parts, time, now, config, state)
    for part in parts:
        if len(part.ends):
            part.memory.judged_until = int(part.ends[-1])
    shown = _asked(parts, config)
    return [streak for part in shown for streak in _streaks(part, config)]


def causal_windows(values: NDArray[np.float32], length: int, limit: int) -> NDArray[np.float32]:
    """Cut windows whose gaps are filled with the nearest sample that is not after the window.

    Parameters
    ----------
    values
        Shape (n_nodes, n_steps), NaN = missing.
    length
        Samples per window.
    limit
        Most steps from a gap to the sample that fills it.

    Returns
    -------
    NDArray[np.float32]
        Shape (n_windows, n_nodes, length); of two equally near samples the earlier one.
    """
    steps = np.where(np.isfinite(values), np.arange(values.shape[1]), np.nan).astype(np.float32)
    nearest = windows(fill_nearest(values, limit, lookahead=limit), length)
    source = windows(fill_nearest(steps, limit, lookahead=limit), length)
    before = windows(fill_nearest(values, limit), length)
    ends = np.arange(length - 1, length - 1 + len(nearest))[:, None, None]
    return np.where(source > ends, before, nearest)


def _part(
    rank: int,
    metric: MetricConfig,
    frame: JobFrame,
    model: Model,
    config: DetectorConfig,
    state: JobState,
) -> Part:
    memory, length, switches = state.metrics[metric.name], config.window_length, config.minder
    ends = frame.times[length - 1 :].astype(np.int64)
    new = ends > memory.judged_until
    first = int(np.argmax(new)) if new.any() else len(ends)
    cut = causal_windows(frame.values, length, switches.fill_seconds)[first:]
    present: Mask = np.asarray(np.isfinite(cut).all(axis=2))
    if switches.distance == "mahalanobis":
        cut = np.where(present, cut.mean(axis=2), np.nan)[:, :, None]
    # The model of all metrics reads windows, not what models of single metrics make of them.
    raw = switches.model == "raw" or switches.join == "integrated"
    points = _embedded(cut, present, metric, Identity() if raw else model)
    distance = _OF_ONE_METRIC.get(switches.distance, switches.distance)
    own = normal_score(distance_sums(points, present, distance))
    candidates = single_candidates(own, config.similarity_threshold)
    if len(cut):
        memory.normal = own[-1]
        memory.z = zscores(np.where(present, cut.mean(axis=2, dtype=np.float64), np.nan))[-1]
        memory.coverage = float(np.isfinite(frame.values[:, -length:]).any(axis=1).mean())
    return Part(rank, metric, frame, memory, ends[first:], points, present, own, own, candidates)


def _embedded(
    cut: NDArray[np.float32], present: Mask, metric: MetricConfig, model: Model
) -> NDArray[np.float32]:
    """Scale and embed what is present; 0 elsewhere."""
    found = model.embed(min_max(cut[present], metric.bounds))
    points = np.zeros((*present.shape, found.shape[1]), dtype=np.float32)
    points[present] = found
    return points


def _joined(parts: list[Part], integrated: Model | None, config: DetectorConfig) -> list[Part]:
    """Give all metrics the scores and candidates of their joined points.

    Judged are the windows that all metrics have. A metric that no node has does not count; a node
    takes part if it has all others.
    """
    if not parts:
        return []
    ends = parts[0].ends
    for part in parts[1:]:
        ends = np.intersect1d(ends, part.ends)
    picked = [np.searchsorted(part.ends, ends) for part in parts]
    points = [part.points[rows] for part, rows in zip(parts, picked, strict=True)]
    known = [part.present[rows] for part, rows in zip(parts, picked, strict=True)]
    somebody: Mask = np.any(known, axis=(0, 2))[:, None]
    present: Mask = somebody & np.all(
        [one | ~one.any(axis=1, keepdims=True) for one in known], axis=0
    )
    if config.minder.join == "integrated":
        joined = _through_one_model(parts, points, known, present, integrated)
    else:
        joined = np.concatenate(points, axis=2)
    scores = normal_score(distance_sums(joined, present, config.minder.distance))
    candidates = single_candidates(scores, config.similarity_threshold)
    return [
        Part(
            part.rank,
            part.metric,
            part.frame,
            part.memory,
            ends,
            points[index],
            present,
            part.own[picked[index]],
            scores,
            candidates,
        )
        for index, part in enumerate(parts)
    ]


def _through_one_model(
    parts: list[Part],
    points: list[NDArray[np.float32]],
    known: list[Mask],
    present: Mask,
    model: Model | None,
) -> NDArray[np.float32]:
    """Embed the scaled windows of all metrics together (INT); 0 where a node takes no part.

    Raises
    ------
    ModelError
        If there is no model of all metrics.
    """
    if not isinstance(model, IntegratedLstmVae):
        raise ModelError(
            "minder.join integrated needs a model of all metrics; take the shipped one (models: "
            "default) or train one with `peerwatch-detector train --integrated`."
        )
    by_metric = {
        # In a window in which nobody has a metric it stands at its usual level for all.
        part.metric.name: np.where(
            np.any(one, axis=1)[:, None, None], cut, np.float32(model.levels[part.metric.name])
        )
        for part, cut, one in zip(parts, points, known, strict=True)
    }
    stacked = model.stack(by_metric, points[0].shape)
    found = model.embed(stacked[present])
    joined = np.zeros((*present.shape, found.shape[1]), dtype=np.float32)
    joined[present] = found
    return joined


def _asked(parts: list[Part], config: DetectorConfig) -> list[Part]:
    """Return the parts that are judged: joined they all say the same."""
    return parts if config.minder.join == "per_metric" else parts[:1]


def _row(part: Part, time: int) -> int | None:
    """Return which window ends at a time, if there is one."""
    row = int(np.searchsorted(part.ends, time))
    return row if row < len(part.ends) and part.ends[row] == time else None


def _follow(part: Part, time: int) -> None:
    """Take one window into the streaks."""
    row = _row(part, time)
    if row is None:
        return
    found, memory = part.candidates[row], part.memory
    # A window with another candidate, or with none, ends a streak, heard from the node or not.
    judged: Mask = np.full(len(found), bool(part.present[row].any()))
    memory.similarity.update(float(time), found, judged)
    memory.peak = np.where(found, part.scores[row], memory.peak)


def _clear(job: Job, time: int, config: DetectorConfig, state: JobState) -> None:
    """Let findings fall whose nodes have not been candidates for long enough."""
    silent = state.last_silent.keys() | job.silent_since.keys()
    quiet: dict[str, float] = {}
    for memory in state.metrics.values():
        streaks = memory.similarity
        for node in (state.standing.keys() & set(streaks.nodes)) - silent:
            seconds = float(streaks.quiet[streaks.nodes.index(node)])
            # What was quiet before a fault began says nothing about its end.
            seconds = min(seconds, time - state.standing[node].since)
            quiet[node] = min(quiet.get(node, np.inf), seconds)
    state.standing = still_standing(state.standing, quiet, config.continuity.clear_seconds)


def _name(
    job_id: str, parts: list[Part], time: int, now: float, config: DetectorConfig, state: JobState
) -> None:
    """Name the node of the first metric in the priority that has one."""
    needed = config.continuity.threshold_seconds if config.minder.continuity else 0.0
    for part in _asked(parts, config):
        row, streaks = _row(part, time), part.memory.similarity
        if row is None:
            continue
        ripe = part.candidates[row] & (streaks.seconds() >= needed)
        if not ripe.any():
            continue
        index = int(np.flatnonzero(ripe)[0])
        node = part.frame.nodes[index]
        if node not in state.standing:
            shown = _showing(parts, time, index) if part.scores is not part.own else part
            state.standing[node] = Finding(
                job_id,
                node,
                guilty_gpu(shown.frame, index, shown.metric),
                shown.metric.name,
                "minder",
                "critical",
                shown.rank,
                float(streaks.start[index]),
                now,
                float(part.scores[row, index]),
            )
        return


def _showing(parts: list[Part], time: int, node: int) -> Part:
    """Return the metric in which a node named by all of them together stands out most."""
    rows = [_row(part, time) for part in parts]
    own = [
        -np.inf if row is None else float(np.nan_to_num(part.own[row, node], nan=-np.inf))
        for part, row in zip(parts, rows, strict=True)
    ]
    return parts[int(np.argmax(own))]


def _streaks(part: Part, config: DetectorConfig) -> list[Streak]:
    streaks = part.memory.similarity
    lengths = streaks.seconds()
    needed = config.continuity.threshold_seconds if config.minder.continuity else 1.0
    return [
        Streak(
            streaks.nodes[index],
            guilty_gpu(part.frame, int(index), part.metric),
            part.metric.name,
            "minder",
            part.rank,
            float(streaks.start[index]),
            float(lengths[index]),
            needed,
            float(np.nan_to_num(part.memory.peak[index])),
            float(streaks.quiet[index]),
        )
        for index in np.flatnonzero(np.isfinite(streaks.start))
    ]
