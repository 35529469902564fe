"""The method ``peerwatch``, step by step.

Steps lie at whole multiples of a few seconds, whatever the cycles, and every metric is evaluated at
the same step, so that what one metric shows can be weighed by what the others do. With samples
finer than a second the seconds of this module are ticks (``steps``), settings and times alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.explanation.record import explain_all, least_compared
from peerwatch_detector.detection.findings import (
    Deviation,
    Finding,
    raise_findings,
    raise_strongest,
    still_standing,
)
from peerwatch_detector.detection.methods.peerwatch.baseline import STEP
from peerwatch_detector.detection.methods.peerwatch.comparison import compare_steps
from peerwatch_detector.detection.methods.peerwatch.evidence import (
    Moment,
    Sign,
    collect_signs,
    weigh,
)
from peerwatch_detector.detection.methods.peerwatch.progress import Phase, Progress
from peerwatch_detector.detection.methods.peerwatch.views import View
from peerwatch_detector.detection.roles import groups_of
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.detection.steps import Ticks
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model

# Progress needs a minute of past, or half of a shorter baseline, to have a usual level.
_LEAST_SECONDS = 60
# Findings are remembered this long to tell their symptoms.
_REMEMBER_SECONDS = 3600.0


def walk(
    job: Job,
    views: list[View],
    models: dict[str, Model],
    config: DetectorConfig,
    state: JobState,
    now: float,
    absent: list[Deviation],
) -> list[Deviation]:
    """Evaluate all new steps of a job.

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
    list[Deviation]
        The running deviations after the last step.
    """
    look(job, views, models, config, state)
    frames = {one.metric.name: one.frame for one in views}
    progress = _progress(config, state)
    # A cycle may be shorter than a step: what ran at the last one still does.
    deviations = [one for one in state.deviations if one.node in job.nodes]
    while state.ahead:
        state.back_to(state.ahead[0])
        moment = state.ahead.pop(0).moment
        time = moment.time
        _follow(views, moment)
        signs = _signs(views, config)
        loss = partial(progress.loss, time=time, least_seconds=least_compared(config))
        deviations = weigh(signs, moment, loss, config)
        _clear(job, time, config, state)
        if len(job.nodes) >= config.min_nodes and not moment.phase.idle:
            gone = _gone(absent, time, config, state)
            known = moment.phase.known
            sustained = (
                gone if _silence_explains(gone, moment, config, state) else [*gone, *deviations]
            )
            new = raise_new(job.job_id, now, sustained, config, state, known=known)
            explain_all(job, new, time, deviations, frames, config, state)
    state.deviations = deviations
    for one in views:
        one.memory.evaluated_until = state.stepped_until
    return deviations


def look(
    job: Job,
    views: list[View],
    models: Mapping[str, Model],
    config: DetectorConfig,
    state: JobState,
) -> None:
    """Compare metrics at all steps that are not weighed yet; ``walk`` weighs them.

    Where the metrics come one after the other, those that tell what the job does come first.

    Parameters
    ----------
    job, views, models, config, state
        As for ``walk``.
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
    for time in _steps(views, state):
        moment = _moment(time, progress, config, state)
        state.ahead.append(state.course(moment))
    moments = [one.moment for one in state.ahead]
    threads = worthwhile(config.scheduling.detection_threads, [one.frame for one in views])
    each(partial(compare_steps, moments=moments, models=models, config=config), views, threads)


def _follow(views: list[View], moment: Moment) -> None:
    """Take what the metrics showed at a step into their deviations."""
    for one in views:
        found = one.memory.compared.pop(moment.time, None)
        if found is None:
            continue
        for trail, (side, evaluated, blind) in zip(
            (one.memory.high, one.memory.low), found.sides(), strict=True
        ):
            trail.update(moment, side, evaluated, blind if trail is one.memory.low else None)


def raise_new(
    job_id: str,
    now: float,
    deviations: list[Deviation],
    config: DetectorConfig,
    state: JobState,
    *,
    known: bool,
) -> list[Finding]:
    """Name nodes: the strongest first where progress is known, else in metric priority."""
    if known:
        recent = [*state.recent, *state.standing.values()]
        symptoms = config.peerwatch.symptoms
        new = raise_strongest(job_id, now, state.standing, recent, deviations, symptoms=symptoms)
    else:
        new = raise_findings(job_id, now, state.standing, deviations)
    state.standing |= {finding.node: finding for finding in new}
    kept = [one for one in state.recent if now - one.raised <= _REMEMBER_SECONDS]
    state.recent = [*kept, *new]
    return new


def missed(absent: list[Deviation], config: DetectorConfig, state: JobState) -> list[Deviation]:
    """Return the absent nodes with the silence that each must reach to be named.

    A job cannot work without one of its nodes. Where it went on working after a node became absent,
    only the node's exporter is known to be gone: such a node has as much time as any other that a
    working job bears.
    """
    least = config.continuity.threshold_seconds
    return [
        replace(one, threshold=max(one.threshold, least)) if _outlived(one, config, state) else one
        for one in absent
    ]


def _outlived(absent: Deviation, config: DetectorConfig, state: JobState) -> bool:
    """Whether the job worked on after a node became absent."""
    noticed = state.phase.noticed_seconds * Ticks.of(config.step_seconds).per_second
    return state.worked_at - absent.since > config.absent.after_seconds + noticed


def _gone(
    absent: list[Deviation], time: int, config: DetectorConfig, state: JobState
) -> list[Deviation]:
    """Return the absent nodes as they stood at a step, or when they were last looked for."""
    return [
        replace(deviation, seconds=min(time - deviation.since, deviation.seconds))
        for deviation in missed(absent, config, state)
        if time - deviation.since >= config.absent.after_seconds
    ]


def _silence_explains(
    gone: list[Deviation], moment: Moment, config: DetectorConfig, state: JobState
) -> bool:
    """Whether a node became absent when the job began to wait, and is not named for it yet.

    It will be, or it comes back; until then nobody else is the reason.
    """
    if moment.waiting_since is None:
        return False
    since = moment.time - (moment.clock - moment.waiting_since)
    slack = config.peerwatch.slack_seconds
    return any(
        abs(one.since - since) <= slack and not one.sustained and not _outlived(one, config, state)
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
    """Return the times of the steps that are not evaluated yet."""
    times = [one.frame.times for one in views if len(one.frame.times)]
    if not times:
        return range(0)
    stepped = max([state.stepped_until, *(one.moment.time for one in state.ahead)])
    first = max(int(min(part[0] for part in times)), stepped + 1)
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
        for deviations in memory.deviations:
            for node in state.standing.keys() & set(deviations.nodes):
                seconds = float(deviations.quiet[deviations.nodes.index(node)])
                quiet[node] = min(quiet.get(node, np.inf), seconds)
    spoke = state.last_absent.keys() | job.absent_since.keys()
    # What was quiet before a fault began says nothing about its end.
    heard = {
        node: min(seconds, time - state.standing[node].since)
        for node, seconds in quiet.items()
        if node not in spoke
    }
    state.standing = still_standing(state.standing, heard, config.continuity.clear_seconds)
