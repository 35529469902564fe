"""Findings as the web UI shows them."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.config.titles import metric_title
from peerwatch_detector.detection.explanation.explain import Explanation, MetricEvidence
from peerwatch_detector.detection.findings import ABSENT, EVIDENCE, Finding
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.units import number, quantity
from peerwatch_detector.web.ago import ago, clock, date
from peerwatch_detector.web.pictures import Pictures


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One metric of an explanation, as the web UI writes it."""

    metric: str
    gpu: str
    direction: str
    value: str
    median: str
    peers: str
    factor: str
    effects: str
    since: str


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as the web UI shows it."""

    job_id: str
    node: str
    gpu: str
    metric: str
    method: str
    severity: str
    score: float
    since: str
    ago: str
    sentence: str
    picture: Markup | None
    picture_note: str
    why: Explanation | None
    rows: list[EvidenceRow]


def finding_view(
    detector: Detector, pictures: Pictures, detection: Detection, finding: Finding
) -> FindingView:
    """Return a finding with its picture, where samples of it are still held."""
    if finding.metric == ABSENT:
        sentence, drawn, note = "vanished: its exporter cannot be reached", None, ""
    elif finding.method == EVIDENCE:
        said = metric_title(finding.metric)
        sentence, drawn, note = f"is named by the job itself: {said}", None, ""
    else:
        title = metric_title(finding.metric, detector.metrics)
        sentence = f"differs from its peers in {title}"
        drawn = pictures.get(detection, finding.metric, finding.node, finding)
        gpu = f" GPU {finding.gpu}" if finding.gpu else ""
        note = (
            f"{title}; red: {finding.node}{gpu}; band and grey line: 10 to 90 % and median of its "
            "peers"
        )
    why = detection.explanations.get(finding)
    return FindingView(
        shortened(detection.job.job_id),
        finding.node,
        finding.gpu,
        finding.metric,
        finding.method,
        finding.severity,
        finding.score,
        date(finding.since),
        ago(detector.clock() - finding.since),
        sentence,
        drawn,
        note,
        why,
        [_row(each) for each in why.metrics if _shows(each, finding)] if why else [],
    )


def _times(factor: float | None) -> str:
    """Return how many times the peers' median it is; nobody reads 5.62e-06."""
    if factor is None:
        return ""
    return "under 0.01 times" if 0 < factor < 0.01 else f"{number(factor)} times"


def _shows(evidence: MetricEvidence, finding: Finding) -> bool:
    """Whether a person sees a difference: two values that read alike are none."""
    own, peers = (quantity(each, evidence.unit) for each in (evidence.value, evidence.median))
    return evidence.metric == finding.metric or own != peers


def _row(evidence: MetricEvidence) -> EvidenceRow:
    low, high = quantity(evidence.low, evidence.unit), quantity(evidence.high, evidence.unit)
    return EvidenceRow(
        evidence.title,
        evidence.gpu,
        evidence.direction,
        quantity(evidence.value, evidence.unit),
        quantity(evidence.median, evidence.unit),
        f"{low} to {high}",
        _times(evidence.factor),
        "" if evidence.effects is None else f"{evidence.effects:.1f}",
        clock(evidence.since),
    )
