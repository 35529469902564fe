"""Takes up the findings that stood before this process evaluated the job.

After a restart they are its own, after a take-over another detector's; either way they stand in
Prometheus.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.detection.findings import EVIDENCE, Finding, Severity
from peerwatch_detector.detection.methods import Method
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.frame import JobFrame, Series
from peerwatch_detector.jobs import Job
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.reader import Reader

logger = logging.getLogger(__name__)

# How far back to search for published findings: as long as the history that is read again
# (``history_seconds``).
RESTORE_SECONDS = 900
# A finding that began within so many samples, of a second at most, of the first one left its node
# no healthy past: a baseline needs as many.
_LEAST_PAST = 60


def published_findings(
    reader: Reader, job: Job, metrics: Iterable[MetricConfig]
) -> tuple[Finding, ...]:
    """Read the findings that were published about a job, in order of time.

    Parameters
    ----------
    reader
        Where they are read.
    job
        The job; findings by comparison about nodes that it no longer has are left out.
    metrics
        In the order of priority.

    Raises
    ------
    ReadError
        As the reader.
    """
    ranks = {metric.name: rank for rank, metric in enumerate(metrics, start=1)}
    query = promql.published_findings(job.job_id, RESTORE_SECONDS)
    ordered = sorted(reader.instant(query), key=lambda series: float(series.values[-1]))
    found = [_restored(job.job_id, series, ranks) for series in ordered]
    # A node whose ranks have all ended tells of the job no more, and is named all the same.
    return tuple(
        each
        for each in found
        if each is not None and (each.node in job.nodes or each.method == EVIDENCE)
    )


def published_step_rate(reader: Reader, job: Job) -> tuple[tuple[str, float], ...]:
    """Read the usual step rate that was published of a job as it is now: which counter, how fast.

    Raises
    ------
    ReadError
        As the reader.
    """
    query = promql.published_step_rate(job.job_id, len(job.nodes), RESTORE_SECONDS)
    found = ((each.labels.get("metric", ""), each.values[-1]) for each in reader.instant(query))
    return tuple((name, float(usual)) for name, usual in found if name and usual > 0)


def restore(findings: Iterable[Finding], state: JobState) -> None:
    """Let published findings stand, as they did before.

    Parameters
    ----------
    findings
        From ``published_findings``.
    state
        Of the job.
    """
    for finding in findings:
        # A node may have had an earlier finding by another metric: the newest one stood.
        state.standing[finding.node] = finding
        logger.info(
            "finding_restored job_id=%s node=%s metric=%s since=%.0f",
            finding.job_id,
            finding.node,
            finding.metric,
            finding.since,
        )


def distrust(
    findings: Iterable[Finding],
    method: Method,
    frames: Mapping[str, JobFrame],
    resolution_seconds: float,
) -> None:
    """Keep the faulty pasts of nodes from becoming their baselines.

    Parameters
    ----------
    findings
        That were restored.
    method
        Of the job.
    frames
        The samples read first, by metric; for more of them call again.
    resolution_seconds
        As the setting: the length of what is counted in samples.
    """
    for finding in findings:
        for frame in frames.values():
            if finding.since < frame.times[0] + _LEAST_PAST * resolution_seconds:
                method.assume_like_peers(finding.node, frame)


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
