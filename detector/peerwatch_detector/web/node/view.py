"""One node: what stands against it, in every metric that it is compared by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.config.titles import metric_title
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.ago import ago
from peerwatch_detector.web.diagnoses import DiagnosisView, diagnosis_views
from peerwatch_detector.web.job.findings import FindingView, finding_view
from peerwatch_detector.web.pictures import Pictures
from peerwatch_detector.web.state import StateView, state_of


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of a node.

    Parameters
    ----------
    metric, title
        Its name, and what a person calls it.
    seconds, needed
        How long it has deviated, and how long it must to be flagged; 0 = it does not deviate.
    flagged
        Whether it is a finding.
    score, zscore
        The newest, as text; empty = not known.
    """

    metric: str
    title: str
    seconds: int
    needed: int
    flagged: bool
    score: str
    zscore: str


@dataclass(frozen=True, slots=True)
class NodeInJob:
    """What one job says about the node."""

    job_id: str
    state: StateView
    not_compared: str
    peers: int
    absent: str
    fault_score: float
    findings: list[FindingView]
    diagnoses: list[DiagnosisView]
    rows: list[MetricRow]
    chosen: str
    picture: Markup | None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, in every job that it works for."""

    name: str
    jobs: list[NodeInJob]


def node_view(
    detector: Detector,
    pictures: Pictures,
    detections: Sequence[Detection],
    node: str,
    metric: str = "",
) -> NodeView | None:
    """Return what is known of a node; None if no job has it.

    Parameters
    ----------
    detector, pictures
        Of whose jobs.
    detections
        The newest of every job.
    node
        Its name, or as the web UI shortens it.
    metric
        Which one to draw; empty = the one with most evidence.
    """
    found = [
        (detection, name)
        for detection in detections
        for name in detection.job.nodes
        if node in {name, shortened(name)}
    ]
    if not found:
        return None
    jobs = [_in_job(detector, pictures, detection, name, metric) for detection, name in found]
    jobs.sort(key=lambda job: (not job.findings, -job.fault_score, job.job_id))
    return NodeView(found[0][1], jobs)


def _in_job(
    detector: Detector, pictures: Pictures, detection: Detection, node: str, metric: str
) -> NodeInJob:
    rows = _rows(detector, detection, node)
    names = [row.metric for row in rows]
    chosen = metric if metric in names else next(iter(names), "")
    since = detection.job.absent_since.get(node)
    job_id = detection.job.job_id
    return NodeInJob(
        shortened(job_id),
        state_of(detection),
        detection.not_compared,
        len(detection.job.nodes) - 1,
        "" if since is None else ago(detector.clock() - since),
        detection.fault_scores.get(node, 0.0),
        [
            finding_view(detector, pictures, detection, finding)
            for finding in detection.findings
            if finding.node == node
        ],
        [view for view in diagnosis_views(detector.snapshot, job_id) if view.node == node],
        rows,
        chosen,
        pictures.get(detection, chosen, node, None) if chosen else None,
    )


def _rows(detector: Detector, detection: Detection, node: str) -> list[MetricRow]:
    """Return the metrics that nodes are compared by, those in which this one deviates first."""
    flagged = {each.metric for each in detection.findings if each.node == node}
    longest = {
        each.metric: each
        for each in sorted(detection.deviations, key=lambda s: s.seconds / s.threshold)
        if each.node == node
    }
    rows = []
    for name in detection.coverage:
        deviation = longest.get(name)
        rows.append(
            MetricRow(
                name,
                metric_title(name, detector.metrics),
                round(deviation.seconds) if deviation else 0,
                round(deviation.threshold) if deviation else 0,
                name in flagged,
                _number(detection.normal_scores.get(name, {}).get(node)),
                _number(detection.zscores.get(name, {}).get(node)),
            )
        )
    # Those without a deviation keep the order of the priority.
    rows.sort(key=lambda row: (not row.flagged, -row.seconds / row.needed if row.needed else 0.0))
    return rows


def _number(value: float | None) -> str:
    return f"{value:.2f}" if value is not None and math.isfinite(value) else ""
