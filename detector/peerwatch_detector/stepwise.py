"""The method ``peerwatch``, step by step.

Steps lie at whole multiples of a few seconds, whatever the cycles, and every metric is judged at
the same step, so that what one metric shows can be weighed by what the others do. With samples
finer than a second the seconds of this module are ticks (``steps``), settings and times alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.baseline import STEP, Usual
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.deviation import Deviation, Side, deviate, side, spreads_needed
from peerwatch_detector.evidence import Moment, Sign, collect_signs, weigh
from peerwatch_detector.explanations import explain_all, least_compared
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model
from peerwatch_detector.preprocess import fill_nearest, min_max
from peerwatch_detector.progress import Phase, Progress
from peerwatch_detector.roles import groups_of
from peerwatch_detector.scores import (
    Finding,
    Streak,
    raise_findings,
    raise_strongest,
    still_standing,
)
from peerwatch_detector.similarity import Mask, distance_sums, peer_score
from peerwatch_detector.state import JobState
from peerwatch_detector.steps import Ticks
from peerwatch_detector.threads import each, worthwhile
from peerwatch_detector.views import Group, View

# Progress needs a minute of past, or half of a shorter baseline, to have a usual level.
_LEAST_SECONDS = 60
# A sample may come this late and still be learned from.
_LATEST_SECONDS = 10
# Findings are remembered this long to tell their symptoms.
_REMEMBER_SECONDS = 3600.0


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
    roles = progress.of_roles(groups_of(job, config))
    for one in views:
        times = np.rint(one.frame.times).astype(np.int64)
        progress.write(one.metric.name, one.metric.level_floor, times, one.middle)
        for group in one.groups:
            if group.role in roles:
                middle = group.middle
                roles[group.role].write(one.metric.name, one.metric.level_floor, times, middle)
    frames = {one.metric.name: one.frame for one in views}
    threads = worthwhile(config.scheduling.judging_threads, frames.values())
    # A cycle may be shorter than a step: what ran at the last one still does.
    streaks = [one for one in state.streaks if one.node in job.nodes]
    for time in _steps(views, state):
        moment = _moment(time, progress, config, state)
        state.stepped_until = time
        if not moment.phase.idle:
            each(
                partial(_judge_metric, moment=moment, models=models, config=config), views, threads
            )
        signs = _signs(views, config)
        loss = partial(progress.loss, time=time, least_seconds=least_compared(config))
        streaks = weigh(signs, moment, loss, config)
        _clear(job, time, config, state)
        if len(job.nodes) >= config.smallest_job and not moment.phase.idle:
            gone = _gone(absent, time, config, state)
            known = moment.phase.known
            ripe = gone if _silence_explains(gone, moment, config, state) else [*gone, *streaks]
            new = raise_new(job.job_id, now, ripe, config, state, known=known)
            explain_all(job, new, time, streaks, frames, config, state)
    state.streaks = streaks
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


def missed(absent: list[Streak], config: DetectorConfig, state: JobState) -> list[Streak]:
    """Return the absent nodes with the silence that each must reach to be named.

    A job cannot work without one of its nodes. Where it went on working after a node fell silent,
    only the node's exporter is known to be gone: such a node has as much time as any other that a
    working job bears.
    """
    least = config.continuity.threshold_seconds
    return [
        replace(one, threshold=max(one.threshold, least)) if _outlived(one, config, state) else one
        for one in absent
    ]


def _outlived(absent: Streak, config: DetectorConfig, state: JobState) -> bool:
    """Whether the job worked on after a node fell silent."""
    noticed = state.phase.noticed_seconds * Ticks.of(config.step_seconds).per_second
    return state.worked_at - absent.since > config.absent.after_seconds + noticed


def _gone(absent: list[Streak], time: int, config: DetectorConfig, state: JobState) -> list[Streak]:
    """Return the absent nodes as they stood at a step, or when they were last looked for."""
    return [
        replace(streak, seconds=min(time - streak.since, streak.seconds))
        for streak in missed(absent, config, state)
        if time - streak.since >= config.absent.after_seconds
    ]


def _silence_explains(
    gone: list[Streak], moment: Moment, config: DetectorConfig, state: JobState
) -> bool:
    """Whether a node fell silent when the job began to wait, and is not named for it yet.

    It will be, or it comes back; until then nobody else is the reason.
    """
    if moment.waiting_since is None:
        return False
    since = moment.time - (moment.clock - moment.waiting_since)
    slack = config.peerwatch.slack_seconds
    return any(
        abs(one.since - since) <= slack and not one.ripe and not _outlived(one, config, state)
        for one in gone
    )


def _progress(config: DetectorConfig, state: JobState) -> Progress:
    if state.progress is None:
        per_second = Ticks.of(config.step_seconds).per_second
        baseline = config.similarity.baseline_seconds // per_second or 2 * _LEAST_SECONDS
        least = int(min(_LEAST_SECONDS, baseline // 2))
        state.progress = Progress(config.peerwatch, least, per_second)
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
        state.halted_seconds += STEP
    elif not phase.waiting:
        state.halted_seconds = 0
        state.worked_at = time if phase.known else -np.inf
    state.phase = phase
    clock = time - state.idle_seconds
    if not phase.waiting:
        state.waiting_since = None
    elif state.waiting_since is None:
        # Of progress, so these are seconds whatever a tick is.
        state.waiting_since = clock - phase.noticed_seconds * progress.per_second
    starting = state.halted_seconds >= config.peerwatch.patience_seconds
    return Moment(time, clock, phase, state.waiting_since, starting)


def _judge_metric(
    one: View, moment: Moment, models: Mapping[str, Model], config: DetectorConfig
) -> None:
    """Take one metric through comparison, candidates, streaks and learning."""
    nodes = len(one.frame.nodes)
    judged: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    blind: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
    sides = {sign: Side(np.zeros(nodes), np.full(nodes, -1), common=False) for sign in (1, -1)}
    unlike = None
    if config.peerwatch.embedding:
        unlike = _unlike(one, moment.time, models[one.metric.name], config)
    for group in one.groups:
        deviation = _deviation(one, group, moment, config)
        evident = _evident(deviation, len(group.within), moment, config)
        if unlike is not None:
            evident |= np.repeat(unlike[group.judged], len(one.gpus))
        shape = (len(group.within), len(one.gpus))
        known: Mask = np.asarray(np.isfinite(deviation.effects).reshape(shape).any(axis=1))
        judged[group.judged] = known[group.within]
        blind[group.judged] = deviation.collapsed and config.peerwatch.first
        for sign, whole in sides.items():
            part = _candidates(one, deviation, evident, shape, sign, moment, config)
            whole.strength[group.judged] = part.strength[group.within]
            whole.gpu[group.judged] = part.gpu[group.within]
            sides[sign] = replace(whole, common=whole.common or part.common)
    for sign, trail in ((1, one.memory.high), (-1, one.memory.low)):
        trail.update(moment, sides[sign], judged, blind if sign < 0 else None)


def _deviation(one: View, group: Group, moment: Moment, config: DetectorConfig) -> Deviation:
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


def _evident(deviation: Deviation, nodes: int, moment: Moment, config: DetectorConfig) -> Mask:
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
    deviation: Deviation,
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
    effect = one.metric.smallest_effect / (high - low) * np.sqrt(length)
    floor = np.array([[effect * (float(present.sum()) - 1)]])
    score = peer_score(distance_sums(embeddings, present[None]), floor)[0]
    over: Mask = np.nan_to_num(score) >= config.similarity_threshold
    return over


def _learn(
    one: View,
    group: Group,
    time: int,
    deviation: Deviation,
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
