"""Takes up the findings that stood before this process evaluated the job.

After a restart they are its own, after a take-over another detector's; either way they stand in
Prometheus.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.findings import Finding, Severity
from peerwatch_detector.detection.pipeline import JobState, new_metric_state
from peerwatch_detector.detection.steps import Ticks, in_ticks
from peerwatch_detector.frame import JobFrame, Series
from peerwatch_detector.jobs import Job
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.reader import Reader

logger = logging.getLogger(__name__)

# How far back to look for published findings.
RESTORE_SECONDS = 900
# A finding that began within so many ticks of the first sample left its node no healthy past.
_LEAST_PAST = 60


def restore_findings(
    reader: Reader,
    job: Job,
    state: JobState,
    frames: Mapping[str, JobFrame],
    metrics: Iterable[MetricConfig],
    config: DetectorConfig,
) -> list[Finding]:
    """Let the findings that were published about a job stand in its state.

    Parameters
    ----------
    reader
        Where they are read.
    job
        The job; findings about nodes that it no longer has are left out.
    state
        Changed in place.
    frames
        The samples read first, by metric.
    metrics
        In the order of priority.
    config
        Settings.

    Returns
    -------
    list[Finding]
        Those findings, for ``distrust``.

    Raises
    ------
    ReadError
        As the reader.
    """
    restored = []
    ticks = Ticks.of(config.step_seconds)
    ranks = {metric.name: rank for rank, metric in enumerate(metrics, start=1)}
    query = promql.published_findings(job.job_id, RESTORE_SECONDS)
    # A node may have had an earlier finding by another metric: the newest one stood.
    for one in sorted(reader.instant(query), key=lambda one: float(one.values[-1])):
        finding = _restored(job.job_id, one, ranks)
        if finding is None or finding.node not in job.nodes:
            continue
        state.standing[finding.node] = ticks.finding(finding)
        restored.append(finding)
        logger.info(
            "finding_restored job_id=%s node=%s metric=%s since=%.0f",
            job.job_id,
            finding.node,
            finding.metric,
            finding.since,
        )
    distrust(restored, state, frames, config)
    return restored


def distrust(
    findings: Iterable[Finding],
    state: JobState,
    frames: Mapping[str, JobFrame],
    config: DetectorConfig,
) -> None:
    """Keep the faulty pasts of nodes from becoming their baselines.

    Parameters
    ----------
    findings
        That were restored.
    state
        Changed in place.
    frames
        The samples read first, by metric; for more of them call again.
    config
        Settings.
    """
    blank, ticks = in_ticks(config), Ticks.of(config.step_seconds)
    for finding in findings:
        for name, frame in frames.items():
            if finding.since < frame.times[0] + _LEAST_PAST / ticks.per_second:
                metric = state.metrics.setdefault(name, new_metric_state(blank))
                metric.baseline.follow(frame.nodes)
                metric.baseline.assume_like_peers(finding.node)


def _restored(job_id: str, series: Series, ranks: dict[str, int]) -> Finding | None:
    """Return a published finding, or None if its labels are not of this version."""
    labels, since = series.labels, float(series.values[-1])
    severities: dict[str, Severity] = {"critical": "critical", "warning": "warning"}
    severity = severities.get(labels.get("severity", ""))
    if severity is None or "node" not in labels or "metric" not in labels:
        return None
    return Finding(
        job_id,
        labels["node"],
        labels.get("gpu", ""),
        labels["metric"],
        labels.get("method", ""),
        severity,
        ranks.get(labels["metric"], 0),
        since,
        since,
        0.0,
    )
