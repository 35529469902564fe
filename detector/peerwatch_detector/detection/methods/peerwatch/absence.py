"""What a node that has vanished says of its job: whether that may wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Deviation
from peerwatch_detector.detection.methods.peerwatch.evidence import FIRST_SHARE
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.time_grid import elapsed


def with_lengths(
    absent: Sequence[Deviation], step: JobStep, config: DetectorConfig
) -> list[Deviation]:
    """Return the absent nodes with the length that makes each a finding.

    A job cannot work without one of its nodes. Where it went on working after a node became absent,
    or had stood still for a while when it did, only the node's exporter is known to be gone: such a
    node has as much time as any other that a working job bears.

    Parameters
    ----------
    absent
        All absent nodes.
    step
        The job now.
    config
        Settings.
    """
    least = config.continuity.threshold_seconds
    return [
        node
        if _may_stop_the_job(node, step, config)
        else replace(node, threshold=max(node.threshold, least))
        for node in absent
    ]


def absent_at(
    absent: Sequence[Deviation], step: JobStep, config: DetectorConfig
) -> list[Deviation]:
    """Return the absent nodes as they stood at a step, or when they were last looked for."""
    return [
        replace(node, seconds=min(elapsed(node.since, step.time), node.seconds))
        for node in with_lengths(absent, step, config)
        if elapsed(node.since, step.time) >= config.absent.after_seconds
    ]


def explain_the_wait(absent: Sequence[Deviation], step: JobStep, config: DetectorConfig) -> bool:
    """Whether a node became absent when the job began to wait, and is no finding yet.

    It will be, or it comes back; until then nobody else is the reason.
    """
    if step.waits_seconds is None:
        return False
    slack = config.peerwatch.slack_seconds
    return any(
        abs(_stood_still_until(node, step)) <= slack
        and not node.sustained
        and _may_stop_the_job(node, step, config)
        for node in absent
    )


def _may_stop_the_job(node: Deviation, step: JobStep, config: DetectorConfig) -> bool:
    """Whether the job may stand still because a node is gone, by when it was last there."""
    noticed = config.absent.after_seconds + step.phase.noticed_seconds
    if elapsed(node.since, step.worked_at) > noticed:
        return False
    if step.waits_seconds is None and not step.phase.idle:
        return True
    return _stood_still_until(node, step) <= FIRST_SHARE * config.peerwatch.slack_seconds


def _stood_still_until(node: Deviation, step: JobStep) -> float:
    """Return how long the job had stood still when a node was last there; negative = it did not."""
    return elapsed(step.time - step.stands_still_seconds, node.since)
