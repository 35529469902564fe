"""Compares the units of one metric with their peers, step by step, and learns from them.

What a metric shows at a step depends on its own samples and on what the job does, not on other
metrics. So each is taken through all new steps by itself, and what it showed is kept until it is
weighed together with the others: that is next to nothing, while the samples are large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.deviation import (
    Compared,
    Side,
    StepDeviations,
    deviate,
    side,
    spreads_needed,
)
from peerwatch_detector.detection.methods.peerwatch.evidence import Moment
from peerwatch_detector.detection.methods.peerwatch.views import Group, View
from peerwatch_detector.detection.preprocess import fill_nearest, min_max
from peerwatch_detector.detection.similarity import Mask, distance_sums, peer_score
from peerwatch_detector.models.base import Model

# A sample may come this late and still be learned from.
_LATEST_SECONDS = 10


def compare_steps(
    one: View, moments: Iterable[Moment], models: Mapping[str, Model], config: DetectorConfig
) -> None:
    """Compare one metric at all moments that it was not compared at yet.

    Parameters
    ----------
    one
        The metric's samples. Its memory keeps what it shows, and its past.
    moments
        In order of time.
    models
        By metric.
    config
        Settings.
    """
    memory = one.memory
    for moment in moments:
        if moment.time <= memory.evaluated_until:
            continue
        if not moment.phase.idle:
            memory.compared[moment.time] = _compare(one, moment, models, config)
        memory.evaluated_until = moment.time


def _compare(
    one: View, moment: Moment, models: Mapping[str, Model], config: DetectorConfig
) -> Compared:
    """Take one metric through comparison, candidates and learning."""
    nodes = len(one.frame.nodes)
    evaluated: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    blind: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    sides = {sign: Side(np.zeros(nodes), np.full(nodes, -1), common=False) for sign in (1, -1)}
    unlike = None
    if config.peerwatch.embedding:
        unlike = _unlike(one, moment.time, models[one.metric.name], config)
    for group in one.groups:
        deviation = _deviation(one, group, moment, config)
        evident = _evident(deviation, len(group.within), moment, config)
        if unlike is not None:
            evident |= np.repeat(unlike[group.evaluated], len(one.gpus))
        shape = (len(group.within), len(one.gpus))
        known: Mask = np.asarray(np.isfinite(deviation.effects).reshape(shape).any(axis=1))
        evaluated[group.evaluated] = known[group.within]
        blind[group.evaluated] = deviation.collapsed and config.peerwatch.first
        for sign, whole in sides.items():
            part = _candidates(one, deviation, evident, shape, sign, moment, config)
            whole.strength[group.evaluated] = part.strength[group.within]
            whole.gpu[group.evaluated] = part.gpu[group.within]
            sides[sign] = replace(whole, common=whole.common or part.common)
    return Compared.of((sides[1], sides[-1]), evaluated, blind)


def _deviation(one: View, group: Group, moment: Moment, config: DetectorConfig) -> StepDeviations:
    """Compare the units of a group at one step, and learn from it."""
    columns = one.columns(moment.time, config.peerwatch.level_seconds)
    usual = group.baseline.usual(moment.time)
    deviation = deviate(
        group.units[:, columns],
        group.middle[columns],
        usual,
        one.metric,
        one.scale,
        config.peerwatch,
    )
    _learn(one, group, moment.time, deviation, usual, config.peerwatch.collapsed_share)
    return deviation


def _evident(deviation: StepDeviations, nodes: int, moment: Moment, config: DetectorConfig) -> Mask:
    """Mark the units whose deviation is beyond doubt, shape (n_units,)."""
    settings = config.peerwatch
    needed = settings.threshold
    if settings.size_aware:
        needed = spreads_needed(needed, nodes)
    evident: Mask = deviation.spreads >= needed
    # While the ranks wait, levels are others than usual for all; but what is weak must be plain.
    late = moment.waits_long(settings.patience_seconds)
    if settings.away and (late or not moment.phase.waiting):
        evident &= deviation.away
    return evident


def _candidates(
    one: View,
    deviation: StepDeviations,
    evident: Mask,
    shape: tuple[int, int],
    sign: int,
    moment: Moment,
    config: DetectorConfig,
) -> Side:
    """Pick a group's candidates on one side; ``shape`` is (n_group_nodes, n_gpus)."""
    nodes, settings = shape[0], config.peerwatch
    sides = ("both", "high" if sign > 0 else "low")
    harmful = one.metric.direction in sides or not settings.direction
    tells = not deviation.collapsed or (one.metric.direction == "high" and sign > 0)
    if not harmful or not tells:
        return Side(np.zeros(nodes), np.full(nodes, -1), common=False)
    largest = max(1.0, config.similarity.largest_share * nodes)
    if not settings.common_cause:
        largest = np.inf
    found = side(deviation, evident, shape, sign, largest)
    late = settings.fast and moment.waits_long(settings.patience_seconds)
    return Side(found.strength / settings.relaxed, found.gpu, found.common) if late else found


def _unlike(one: View, time: int, model: Model, config: DetectorConfig) -> Mask:
    """Mark the nodes whose embedded window is unlike those of all others, shape (n_nodes,)."""
    length = config.window_length
    limit = int(config.fill_limit_seconds)
    reach = (length + limit) * max(1, config.step_seconds)
    filled = fill_nearest(one.frame.values[:, one.columns(time, reach)], limit)[:, -length:]
    present: Mask = np.isfinite(filled).all(axis=1) & (filled.shape[1] == length)
    if present.sum() < 2:
        return np.zeros(len(present), dtype=bool)
    points = model.embed(min_max(filled[present], one.metric.bounds))
    embeddings = np.zeros((1, len(present), points.shape[1]), dtype=np.float32)
    embeddings[0, present] = points
    low, high = one.metric.bounds
    effect = one.metric.min_effect_size / (high - low) * np.sqrt(length)
    floor = np.array([[effect * (float(present.sum()) - 1)]])
    score = peer_score(distance_sums(embeddings, present[None]), floor)[0]
    over: Mask = np.nan_to_num(score) >= config.similarity_threshold
    return over


def _learn(
    one: View,
    group: Group,
    time: int,
    deviation: StepDeviations,
    usual: Usual,
    collapsed_share: float,
) -> None:
    """Add the newest sample that is not learned yet to the past; it may have come late."""
    baseline = group.baseline
    columns = one.columns(time, _LATEST_SECONDS)
    known = np.flatnonzero(np.isfinite(group.middle[columns]))
    if not len(known):
        return
    column = columns.start + int(known[-1])
    if one.frame.times[column] <= baseline.learned_until:
        return
    baseline.learned_until = float(one.frame.times[column])
    level = float(group.middle[column])
    offset = one.scale.offset(group.units[:, column], level)
    healthy = deviation.healthy & (not level < collapsed_share * usual.level)
    baseline.learn(time, level, offset, healthy)
