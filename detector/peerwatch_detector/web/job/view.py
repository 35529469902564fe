"""A training job as the web UI shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flask

from peerwatch_common.metrics.label_length import shortened
from peerwatch_detector.detection.findings import Deviation
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.metrics import Snapshot
from peerwatch_detector.web.ago import ago
from peerwatch_detector.web.diagnoses import DiagnosisView, diagnosis_views
from peerwatch_detector.web.incident.address import Address, begun_of
from peerwatch_detector.web.job.findings import FindingView, finding_view
from peerwatch_detector.web.pictures import Pictures
from peerwatch_detector.web.state import StateView, state_of
from peerwatch_detector.web.step_rate import step_rate_text

# A table of 1,500 nodes is longer than anybody reads, and than a view may weigh: those with the
# most evidence are shown, and the names of all others where somebody asks. Chosen: one screen.
SHOWN_NODES = 40


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One row of the table of nodes."""

    name: str
    score: float
    deviation: Deviation | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A training job as the web UI shows it."""

    job_id: str
    nodes: int
    state: StateView
    age: str
    findings: list[FindingView]
    ranking: list[NodeRow]
    not_compared: str
    diagnoses: list[DiagnosisView]
    step_rate: str
    others: tuple[str, ...] = ()

    @property
    def left_out(self) -> int:
        """How many nodes the table does not show."""
        return self.nodes - len(self.ranking) - len(self.others)


def job_view(
    detector: Detector, pictures: Pictures, detection: Detection, *, all_nodes: bool = False
) -> JobView:
    """Return a job with all its findings, and the nodes that stand out most."""
    longest: dict[str, Deviation] = {}
    for deviation in sorted(detection.deviations, key=lambda s: s.seconds / s.threshold):
        longest[deviation.node] = deviation
    scores = sorted(detection.fault_scores.items(), key=lambda kv: (-kv[1], kv[0]))
    shown = scores[:SHOWN_NODES]
    return JobView(
        shortened(detection.job.job_id),
        len(detection.job.nodes),
        state_of(detection),
        ago(detector.clock() - detection.time),
        [finding_view(detector, pictures, detection, found) for found in detection.findings],
        [NodeRow(node, score, longest.get(node)) for node, score in shown],
        detection.not_compared,
        diagnosis_views(detector.snapshot, detection.job.job_id),
        step_rate_text(detection.step_rate),
        tuple(sorted(node for node, _ in scores[SHOWN_NODES:])) if all_nodes else (),
    )


def chosen_picture(pictures: Pictures, detection: Detection, view: JobView) -> dict[str, Any]:
    """Return the metric and node the visitor asked for, or the ones with most evidence."""
    nodes, metrics = {shortened(n): n for n in detection.job.nodes}, list(detection.coverage)
    first = view.ranking[0]
    metric = flask.request.args.get("metric") or (first.deviation.metric if first.deviation else "")
    asked = flask.request.args.get("node", "")
    metric = metric if metric in metrics else (metrics[0] if metrics else "")
    node = nodes.get(shortened(asked), first.name)
    return {
        "metric": metric,
        "node": node,
        "picture": pictures.get(detection, metric, node, None),
        "flagged": any(finding.node == node for finding in detection.findings),
    }


def incident_of(snapshot: Snapshot, detection: Detection) -> Address | None:
    """Return the address of what stands against a job now; None if nothing does."""
    job_id = detection.job.job_id
    known = snapshot.diagnoses
    verdicts = [] if known is None else [each for each in known.verdicts if each.job_id == job_id]
    begun = begun_of(
        [each.since for each in detection.findings] or [each.start_time for each in verdicts]
    )
    return None if begun is None else Address(job_id, begun)
