"""Compares the units of one metric with their peers, step by step, and learns from them.

What a metric shows at a step depends on its own samples and on what the job does, not on other
metrics. So each is taken through all new steps by itself, and its candidates are kept until they
are assessed together with the others: that is next to nothing, while the samples are large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.peerwatch.calm import calm_steps, compare_calm
from peerwatch_detector.detection.methods.peerwatch.effects import (
    EQUAL_SHARE,
    Side,
    StepCandidates,
    StepDeviations,
    candidates_on,
    deviate,
    mean_known,
    shared_effect,
    spreads_needed,
)
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.learning import learn
from peerwatch_detector.detection.methods.peerwatch.metric_view import Group, MetricView
from peerwatch_detector.detection.preprocess import fill_nearest, min_max
from peerwatch_detector.detection.similarity import Mask, distance_sums, peer_score
from peerwatch_detector.models.base import Model

# Moved away from the peers' plain level by this share of the minimum effect size.
_AWAY = 0.7
# So close to where it once was, in minimum effect sizes, a unit is back there: below
# peerwatch.relaxed, so that what moved away from what always was usual is not.
_BACK = 0.5
# What a node's processes do and hold. Every restart sets it anew: another node is the first rank,
# which logs and serves the rendezvous, and others feed it. What the hardware does stays.
OF_PROCESSES = frozenset({"load", "memory", "own"})


def compare_steps(
    view: MetricView,
    steps: Iterable[JobStep],
    models: Mapping[str, Model],
    config: DetectorConfig,
    flagged: Collection[str] = (),
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
    flagged
        Nodes with a finding, which no restart of the job refutes.
    """
    memory = view.memory
    due = [step for step in steps if step.time > memory.evaluated_until]
    for together in _together(due, view):
        if _begins_anew(together[0], view):
            for group in view.groups:
                group.baseline.forget(flagged)
        working = [step for step in together if not step.phase.idle]
        calm = compare_calm(view, working, config)
        memory.compared |= calm
        memory.evaluated_until = max([memory.evaluated_until, *calm])
        for step in working[len(calm) :]:
            memory.compared[step.time] = _compare(view, step, models, config)
            memory.evaluated_until = step.time
        memory.evaluated_until = together[-1].time
    for group in view.groups:
        group.corrected.forget()


def _together(steps: Iterable[JobStep], view: MetricView) -> Iterator[list[JobStep]]:
    """Yield the steps by what is normal at them."""
    together: list[JobStep] = []
    for step in steps:
        period = view.memory.baseline.period
        if together and (period(step.time) != period(together[0].time) or _begins_anew(step, view)):
            yield together
            together = []
        together.append(step)
    if together:
        yield together


def _begins_anew(step: JobStep, view: MetricView) -> bool:
    """Whether what is normal is forgotten, as the job's processes were started anew."""
    return step.resumed and view.metric.kind in OF_PROCESSES


def _compare(
    view: MetricView, step: JobStep, models: Mapping[str, Model], config: DetectorConfig
) -> StepCandidates:
    """Take one metric through comparison, candidates and learning."""
    nodes = len(view.frame.nodes)
    evaluated: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    unobservable: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    deviating = []
    for group in view.groups:
        calm = calm_steps(view, group, [step], config)
        if not calm.steps:
            deviating.append(group)
            continue
        calm.learn(1, config)
        evaluated[group.evaluated] = calm.known[0]
        unobservable[group.evaluated] = calm.collapsed[0] and config.peerwatch.first
    if not deviating:
        return StepCandidates.nobody(evaluated, unobservable)
    sides = {sign: Side.empty(nodes, common=False) for sign in (1, -1)}
    unlike = None
    if config.peerwatch.embedding:
        unlike = _unlike(view, step.time, models[view.metric.name], config)
    for group in deviating:
        deviation, back = _deviation(view, group, step, config)
        evident = _evident(deviation, len(group.within), step, config) & ~back
        if unlike is not None:
            evident |= np.repeat(unlike[group.evaluated], len(view.gpus))
        finite: Mask = np.isfinite(deviation.effects)
        known = np.asarray(finite.reshape(-1, len(view.gpus)).any(axis=1))
        evaluated[group.evaluated] = known[group.within]
        unobservable[group.evaluated] = deviation.collapsed and config.peerwatch.first
        for sign, whole in sides.items():
            part = _candidates(view, group, deviation, evident, sign, step, config)
            if part is None:
                continue
            whole.strength[group.evaluated] = part.strength[group.within]
            whole.gpu[group.evaluated] = part.gpu[group.within]
            whole.of_many[group.evaluated] = part.of_many[group.within]
            sides[sign] = replace(whole, common=whole.common or part.common)
    return StepCandidates.of((sides[1], sides[-1]), evaluated, unobservable)


def _deviation(
    view: MetricView, group: Group, step: JobStep, config: DetectorConfig
) -> tuple[StepDeviations, Mask]:
    """Compare the units of a group at one step, and learn from it.

    Returns
    -------
    tuple[StepDeviations, Mask]
        The second marks the units that are back where they usually were, shape (n_units,).
    """
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
    back: Mask = np.zeros_like(deviation.healthy)
    if config.peerwatch.returns and view.metric.kind in OF_PROCESSES:
        back = _back(view, group, deviation, step)
    learnable = deviation.healthy
    if not step.phase.waiting:
        # What a unit is back at becomes usual anew: the hour in which it was so comes to an end.
        learnable |= deviation.among_peers | back
    learn(view, group, step, learnable, usual, config)
    return deviation, back


def _evident(deviation: StepDeviations, nodes: int, step: JobStep, config: DetectorConfig) -> Mask:
    """Mark the units whose deviation is beyond doubt, shape (n_units,)."""
    settings = config.peerwatch
    needed = settings.threshold
    if settings.size_aware:
        needed = spreads_needed(needed, nodes)
    evident: Mask = deviation.spreads >= needed
    if settings.away:
        # While the ranks wait, levels are others than usual for all: who lost what it usually has
        # more than others is where they are. But what is weak must be plain.
        late = step.waits_long(settings.patience_seconds)
        if late or not step.phase.waiting:
            evident &= deviation.plain >= _AWAY
        else:
            evident &= deviation.plain > 0
    return evident


def _back(view: MetricView, group: Group, deviation: StepDeviations, step: JobStep) -> Mask:
    """Mark the units that are where they usually were within the last hour, shape (n_units,).

    A program that ran beside the job for minutes became usual. Without it the node is as before.
    """
    usual = group.baseline.usual(step.time)
    moved = (usual.offset[:, None] - group.baseline.earlier) / view.scale.min_effect_size(
        view.metric, usual.level
    )
    near: Mask = np.abs(deviation.effects[:, None] + moved) < _BACK
    return np.asarray(near.any(axis=1))


def _candidates(
    view: MetricView,
    group: Group,
    deviation: StepDeviations,
    evident: Mask,
    sign: int,
    step: JobStep,
    config: DetectorConfig,
) -> Side | None:
    """Pick a group's candidates on one side, None for none."""
    nodes, settings = len(group.within), config.peerwatch
    sides = ("both", "high" if sign > 0 else "low")
    harmful = view.metric.direction in sides or not settings.direction
    observable = not deviation.collapsed or (view.metric.direction == "high" and sign > 0)
    if not harmful or not observable:
        return None
    late = settings.fast and step.waits_long(settings.patience_seconds)
    least = settings.relaxed if late else 1.0
    # Nearly always it is nobody: what is left of strengths below 1 is dropped.
    if not (evident & (sign * deviation.effects >= least)).any():
        return None
    largest = max(1.0, config.similarity.largest_share * nodes)
    kind: str | None = view.metric.kind
    if not settings.common_cause:
        largest, kind = np.inf, None
    shape = (nodes, len(view.gpus))
    found = candidates_on(deviation, evident, shape, sign, largest, kind)
    if view.metric.kind == "network" and sign > 0 and settings.common_cause:
        # Nodes feel a congestion that they share unequally: a node is more than one of those only
        # if it exceeds the others by as much as these exceed what is usual. NaN is no more.
        least *= max(1.0, deviation.shared)
        # Nor does congestion keep to roles: where it ends in the midst of one, a single node of it
        # is left among peers that do not feel it.
        risen = _risen_elsewhere(view, group, step, config)
        felt = (found.strength > 0) & (risen >= EQUAL_SHARE["network"] * found.strength)
        found = replace(found, of_many=found.of_many | felt)
    return replace(found, strength=found.strength / least)


def _risen_elsewhere(
    view: MetricView, group: Group, step: JobStep, config: DetectorConfig
) -> float:
    """Return how far the level of any other role is above its usual one, in minimum effect sizes.

    -inf = there is no other role, or nothing is known of it.
    """
    columns = view.grid.columns(step.time, config.peerwatch.level_seconds)
    risen = -np.inf
    for other in view.groups:
        if other is group:
            continue
        level, usual = mean_known(other.middle[columns]), other.baseline.usual(step.time)
        # NaN is no more.
        risen = max(risen, shared_effect(level, usual, view.metric, view.scale, config.peerwatch))
    return risen


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
