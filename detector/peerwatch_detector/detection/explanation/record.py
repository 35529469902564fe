"""Keeps with each finding what speaks for it, measured at the moment it was raised.

Times and durations come in ticks (``steps``); what people read is in seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.explanation.explain import JobCourse, explain, measure
from peerwatch_detector.detection.findings import ABSENT, Deviation, Finding
from peerwatch_detector.detection.roles import peers_of
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.detection.steps import Ticks
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job

# So much of progress must be known before and after a moment to compare, or this share of a
# shorter continuity.
_LEAST_SECONDS, _COMPARED_SHARE = 60, 0.25


def least_compared(config: DetectorConfig) -> float:
    """Return how many seconds of progress must be known before and after a moment."""
    threshold = config.continuity.threshold_seconds / Ticks.of(config.step_seconds).per_second
    return min(_LEAST_SECONDS, _COMPARED_SHARE * threshold)


def explain_all(
    job: Job,
    findings: Collection[Finding],
    time: int,
    deviations: list[Deviation],
    frames: dict[str, JobFrame],
    config: DetectorConfig,
    state: JobState,
    *,
    before_restart: bool = False,
) -> None:
    """Keep with each finding what speaks for it now.

    Parameters
    ----------
    job
        Whose they are.
    findings
        To explain; all stand.
    time
        Unix time in ticks; no later sample is used.
    deviations, frames
        All that run, and the samples by metric.
    config, state
        Settings; the state is changed in place.
    before_restart
        Whether an earlier process raised them.
    """
    if not findings:
        return
    ticks = Ticks.of(config.step_seconds)
    metrics = {metric.name: metric for metric in config.detection_metrics()}
    seconds = int(config.peerwatch.level_seconds)
    for finding in findings:
        peers = peers_of(finding.node, job, config)
        measured = [
            measure(one, metrics[one.metric], frames[one.metric], peers, time, seconds)
            for one in deviations
            if one.node == finding.node and one.metric in frames
        ]
        absent = finding.metric == ABSENT
        needed = (config.absent if absent else config.continuity).threshold_seconds
        state.explanations[finding] = explain(
            ticks.finding_in_seconds(finding),
            [replace(one, since=one.since / ticks.per_second) for one in measured],
            _course(finding.since, time, config, state),
            time / ticks.per_second,
            needed / ticks.per_second,
            title=metrics[finding.metric].shown_title if finding.metric in metrics else None,
            before_restart=before_restart,
        )


def _course(since: float, time: int, config: DetectorConfig, state: JobState) -> JobCourse:
    """Return what the job does, by the last step that was evaluated; lengths are in seconds."""
    per_second = Ticks.of(config.step_seconds).per_second
    if state.progress is None or not state.phase.known:
        return JobCourse("unknown")
    if state.waiting_since is not None:
        waits = state.stepped_until - state.idle_seconds - state.waiting_since
        return JobCourse("waits", waits_seconds=waits / per_second)
    if state.phase.idle:
        return JobCourse("rests")
    loss = state.progress.loss(since, time, least_compared(config))
    if not np.isfinite(loss):
        return JobCourse("trains")
    return JobCourse("slowed" if loss >= config.peerwatch.progress_loss else "trains", loss)
