"""Measures what speaks for findings at the moment they are raised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.explanation.explain import (
    Explanation,
    JobProgress,
    explain,
    measure,
)
from peerwatch_detector.detection.findings import ABSENT, Deviation, Finding
from peerwatch_detector.frame import JobFrame


def explain_all(
    findings: Collection[Finding],
    time: float,
    deviations: list[Deviation],
    frames: Mapping[str, JobFrame],
    config: DetectorConfig,
    *,
    peers_of: Callable[[str], Collection[str]],
    progress_since: Callable[[float], JobProgress],
    before_restart: bool = False,
) -> dict[Finding, Explanation]:
    """Return what speaks for each finding now.

    Parameters
    ----------
    findings
        To explain; all stand.
    time
        Unix time; no later sample is used.
    deviations, frames
        All that run, and the samples by metric.
    config
        Settings.
    peers_of
        Tells the nodes that a node is compared with.
    progress_since
        Tells what the job does, and what it has lost since a Unix time.
    before_restart
        Whether an earlier process raised them.
    """
    explanations: dict[Finding, Explanation] = {}
    if not findings:
        # Mostly there are none, and the metrics' configuration is costly to put together.
        return explanations
    metrics = {metric.name: metric for metric in config.detection_metrics()}
    for finding in findings:
        peers = peers_of(finding.node)
        measured = [
            measure(
                deviation,
                metrics[deviation.metric],
                frames[deviation.metric],
                peers,
                time,
                config.peerwatch.level_seconds,
            )
            for deviation in deviations
            if deviation.node == finding.node and deviation.metric in frames
        ]
        absent = finding.metric == ABSENT
        explanations[finding] = explain(
            finding,
            measured,
            progress_since(finding.since),
            time,
            (config.absent if absent else config.continuity).threshold_seconds,
            title=metrics[finding.metric].shown_title if finding.metric in metrics else None,
            before_restart=before_restart,
        )
    return explanations
