"""Compares the units of one metric with their peers, step by step, and learns from them.

What a metric shows at a step depends on its own samples and on what the job does, not on other
metrics. So each is taken through all new steps by itself, and its candidates are kept until they
are assessed together with the others: that is next to nothing, while the samples are large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.effects import (
    Side,
    StepCandidates,
    StepDeviations,
    candidates_on,
    deviate,
    spreads_needed,
)
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.metric_view import Group, MetricView
from peerwatch_detector.detection.preprocess import fill_nearest, min_max
from peerwatch_detector.detection.similarity import Mask, distance_sums, peer_score
from peerwatch_detector.models.base import Model

# A sample may come so many samples late, of a second at most, and still be learned from: two steps.
_LATEST = 10


def compare_steps(
    view: MetricView, steps: Iterable[JobStep], models: Mapping[str, Model], config: DetectorConfig
) -> None:
    """Compare one metric at all steps that it was not compared at yet.

    Parameters
    ----------
    view
        The metric's samples. Its memory keeps what it shows, and its past.
    steps
        In order of time.
    models
        By metric.
    config
        Settings.
    """
    memory = view.memory
    for step in steps:
        if step.time <= memory.evaluated_until:
            continue
        if not step.phase.idle:
            memory.compared[step.time] = _compare(view, step, models, config)
        memory.evaluated_until = step.time


def _compare(
    view: MetricView, step: JobStep, models: Mapping[str, Model], config: DetectorConfig
) -> StepCandidates:
    """Take one metric through comparison, candidates and learning."""
    nodes = len(view.frame.nodes)
    evaluated: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    unobservable: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    sides = {sign: Side(np.zeros(nodes), np.full(nodes, -1), common=False) for sign in (1, -1)}
    unlike = None
    if config.peerwatch.embedding:
        unlike = _unlike(view, step.time, models[view.metric.name], config)
    for group in view.groups:
        deviation = _deviation(view, group, step, config)
        evident = _evident(deviation, len(group.within), step, config)
        if unlike is not None:
            evident |= np.repeat(unlike[group.evaluated], len(view.gpus))
        shape = (len(group.within), len(view.gpus))
        known: Mask = np.asarray(np.isfinite(deviation.effects).reshape(shape).any(axis=1))
        evaluated[group.evaluated] = known[group.within]
        unobservable[group.evaluated] = deviation.collapsed and config.peerwatch.first
        for sign, whole in sides.items():
            part = _candidates(view, deviation, evident, shape, sign, step, config)
            whole.strength[group.evaluated] = part.strength[group.within]
            whole.gpu[group.evaluated] = part.gpu[group.within]
            sides[sign] = replace(whole, common=whole.common or part.common)
    return StepCandidates.of((sides[1], sides[-1]), evaluated, unobservable)


def _deviation(
    view: MetricView, group: Group, step: JobStep, config: DetectorConfig
) -> StepDeviations:
    """Compare the units of a group at one step, and learn from it."""
    columns = view.grid.columns(step.time, config.peerwatch.level_seconds)
    usual = group.baseline.usual(step.time)
    deviation = deviate(
        group.units[:, columns],
        group.middle[columns],
        usual,
        view.metric,
        view.scale,
        config.peerwatch,
    )
    _learn(view, group, step, deviation, usual, config)
    return deviation


def _evident(deviation: StepDeviations, nodes: int, step: JobStep, config: DetectorConfig) -> Mask:
    """Mark the units whose deviation is beyond doubt, shape (n_units,)."""
    settings = config.peerwatch
    needed = settings.threshold
    if settings.size_aware:
        needed = spreads_needed(needed, nodes)
    evident: Mask = deviation.spreads >= needed
    # While the ranks wait, levels are others than usual for all; but what is weak must be plain.
    late = step.waits_long(settings.patience_seconds)
    if settings.away and (late or not step.phase.waiting):
        evident &= deviation.away
    return evident


def _candidates(
    view: MetricView,
    deviation: StepDeviations,
    evident: Mask,
    shape: tuple[int, int],
    sign: int,
    step: JobStep,
    config: DetectorConfig,
) -> Side:
    """Pick a group's candidates on one side; ``shape`` is (n_group_nodes, n_gpus)."""
    nodes, settings = shape[0], config.peerwatch
    sides = ("both", "high" if sign > 0 else "low")
    harmful = view.metric.direction in sides or not settings.direction
    observable = not deviation.collapsed or (view.metric.direction == "high" and sign > 0)
    if not harmful or not observable:
        return Side(np.zeros(nodes), np.full(nodes, -1), common=False)
    largest = max(1.0, config.similarity.largest_share * nodes)
    if not settings.common_cause:
        largest = np.inf
    found = candidates_on(deviation, evident, shape, sign, largest)
    late = settings.fast and step.waits_long(settings.patience_seconds)
    least = settings.relaxed if late else 1.0
    if view.metric.kind == "network" and sign > 0 and settings.common_cause:
        # Nodes feel a congestion that they share unequally: a node is more than one of those only
        # if it exceeds the others by as much as these exceed what is usual. NaN is no more.
        least *= max(1.0, deviation.shared)
    return Side(found.strength / least, found.gpu, found.common)


def _unlike(view: MetricView, time: float, model: Model, config: DetectorConfig) -> Mask:
    """Mark the nodes whose embedded window is unlike those of all others, shape (n_nodes,)."""
    length = config.window_length
    limit = config.steps_in(config.fill_limit_seconds)
    columns = view.grid.columns(time, (length + limit) * config.step_seconds)
    filled = fill_nearest(view.frame.values[:, columns], limit)[:, -length:]
    present: Mask = np.isfinite(filled).all(axis=1) & (filled.shape[1] == length)
    if present.sum() < 2:
        return np.zeros(len(present), dtype=bool)
    points = model.embed(min_max(filled[present], view.metric.bounds))
    embeddings = np.zeros((1, len(present), points.shape[1]), dtype=np.float32)
    embeddings[0, present] = points
    low, high = view.metric.bounds
    effect = view.metric.min_effect_size / (high - low) * np.sqrt(length)
    floor = np.array([[effect * (float(present.sum()) - 1)]])
    score = peer_score(distance_sums(embeddings, present[None]), floor)[0]
    over: Mask = np.nan_to_num(score) >= config.similarity_threshold
    return over


def _learn(
    view: MetricView,
    group: Group,
    step: JobStep,
    deviation: StepDeviations,
    usual: Usual,
    config: DetectorConfig,
) -> None:
    """Add the newest sample that is not learned yet to the past; it may have come late."""
    baseline = group.baseline
    columns = view.grid.columns(step.time, _LATEST * config.resolution_seconds)
    known = np.flatnonzero(np.isfinite(group.middle[columns]))
    if not len(known):
        return
    column = columns.start + int(known[-1])
    if view.frame.times[column] <= baseline.learned_until:
        return
    baseline.learned_until = float(view.frame.times[column])
    level = float(group.middle[column])
    offset = view.scale.offset(group.units[:, column], level)
    healthy = deviation.healthy & (not level < config.peerwatch.collapsed_share * usual.level)
    # What all show in a wait is not their usual level: after minutes of it the level would not
    # count as collapsed any more, and what little is left would be compared.
    learned = np.nan if step.phase.waiting else level
    baseline.learn(step.time, learned, offset, healthy)
