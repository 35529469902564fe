"""The detector's endpoints: /metrics for Prometheus, the web UI for a person, JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import flask
from markupsafe import Markup
from werkzeug.routing import PathConverter

from peerwatch_common.metrics.exposition import OPENMETRICS_CONTENT_TYPE, TEXT_CONTENT_TYPE
from peerwatch_common.metrics.label_length import shortened
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.negotiation import prefers_openmetrics
from peerwatch_detector import __version__
from peerwatch_detector.detection.explanation.explain import Explanation, MetricEvidence
from peerwatch_detector.detection.findings import ABSENT, EVIDENCE, Deviation, Finding
from peerwatch_detector.detection.pipeline import Detection
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.metrics import Exposition
from peerwatch_detector.units import number, quantity
from peerwatch_detector.web.diagnoses import DiagnosisView, diagnoses_json, diagnosis_views
from peerwatch_detector.web.pace import pace_text
from peerwatch_detector.web.pictures import Pictures
from peerwatch_detector.web.root.page import RootParts
from peerwatch_detector.web.root.view import root_of_job_json
from peerwatch_detector.web.segments import HeatMaps


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding as the web UI shows it."""

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
class NodeView:
    """One row of the table of nodes."""

    name: str
    score: float
    deviation: Deviation | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A training job as the web UI shows it."""

    job_id: str
    nodes: tuple[str, ...]
    state: str
    age: str
    findings: list[FindingView]
    ranking: list[NodeView]
    not_compared: str
    diagnoses: list[DiagnosisView]
    pace: str


class _Anything(PathConverter):
    """The rest of an address: ids such as namespace/name hold slashes, some begin with one."""

    regex = "(?s:.+)"
    part_isolating = False


def create_app(detector: Detector, facts: WebFacts) -> flask.Flask:
    """Return the WSGI application over a running detector."""
    app = flask.Flask(__name__)
    app.url_map.converters["anything"] = _Anything
    app.url_map.merge_slashes = False
    # Lengths that are meant, as of a picture's lines and of addresses, pass with the filter e.
    app.jinja_env.finalize = _short
    app.jinja_env.filters["short"] = shortened
    exposition = Exposition(lambda: detector.snapshot, facts, detector.reloads)
    pictures = Pictures(detector)
    heat_maps = HeatMaps(detector.instants)
    roots = RootParts(detector)

    @app.get("/metrics")
    def metrics() -> flask.Response:
        openmetrics = prefers_openmetrics(flask.request.headers.get("Accept", ""))
        content_type = OPENMETRICS_CONTENT_TYPE if openmetrics else TEXT_CONTENT_TYPE
        return flask.Response(exposition.render(openmetrics=openmetrics), content_type=content_type)

    @app.get("/api/v1/jobs")
    def jobs() -> dict[str, Any]:
        snapshot = detector.snapshot
        found = [
            _as_json(detection)
            | {
                "diagnoses": diagnoses_json(snapshot, detection.job.job_id),
                "root": root_of_job_json(snapshot.diagnoses, detection.job.job_id),
            }
            for detection in snapshot.detections
        ]
        return {"preparing": snapshot.preparing, "jobs": _all_short(found)}

    @app.get("/")
    def index() -> str:
        detections = detector.snapshot.detections
        views = [_job_view(detector, pictures, detection) for detection in detections]
        return flask.render_template(
            "index.html",
            jobs=views,
            summaries=[roots.summaries(detection.job.job_id) for detection in detections],
            total=sum(len(view.findings) for view in views),
            job_info=detector.config.discovery.job_info,
        )

    @app.get("/jobs/<anything:job_id>")
    def job_view(job_id: str) -> str:
        found = known_detection(job_id)
        view = _job_view(detector, pictures, found)
        chosen = _chosen(pictures, found, view)
        return flask.render_template(
            "job.html",
            job=view,
            root=roots.get(found.job.job_id),
            chosen=chosen,
            metrics=list(found.coverage),
        )

    @app.get("/segments/<anything:job_id>")
    def segments_view(job_id: str) -> str:
        known = known_detection(job_id).job.job_id
        return flask.render_template(
            "segments.html", job_id=shortened(known), map=heat_maps.get(known)
        )

    def known_detection(job_id: str) -> Detection:
        found = [
            d
            for d in detector.snapshot.detections
            if job_id in {d.job.job_id, shortened(d.job.job_id)}
        ]
        if not found:
            flask.abort(404, f"No training job {job_id!r} is known; / lists those that are.")
        return found[0]

    @app.context_processor
    def common() -> dict[str, Any]:
        return {
            "version": __version__,
            "method": detector.config.method,
            "up": detector.snapshot.reading.up,
            "preparing": detector.snapshot.preparing,
        }

    return app


def _short(value: object) -> object:
    """Return what a template writes; a name of a megabyte is written as the metrics have it."""
    return shortened(value) if type(value) is str else value


def _all_short(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    if isinstance(value, dict):
        return {key: _all_short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_all_short(item) for item in value]
    return _short(value)


def _as_json(detection: Detection) -> dict[str, Any]:
    return {
        "job_id": detection.job.job_id,
        "nodes": list(detection.job.nodes),
        "running": detection.job.running,
        "comparable": detection.comparable,
        "not_compared": detection.not_compared or None,
        "evaluated_until": detection.time,
        "progress": None if detection.pace is None else asdict(detection.pace),
        "findings": [
            {
                "node": f.node,
                "gpu": f.gpu,
                "metric": f.metric,
                "method": f.method,
                "severity": f.severity,
                "score": f.score,
                "since": f.since,
                "raised": f.raised,
                "explanation": _explained(detection.explanations.get(f)),
            }
            for f in detection.findings
        ],
        "candidates": [
            {
                "node": s.node,
                "gpu": s.gpu,
                "metric": s.metric,
                "method": s.method,
                "continuity_seconds": s.seconds,
                "threshold_seconds": s.threshold,
                "normal_score": _known(detection.normal_scores.get(s.metric, {}).get(s.node)),
                "score": s.score,
                "since": s.since,
            }
            for s in detection.deviations
        ],
    }


def _explained(why: Explanation | None) -> dict[str, Any] | None:
    return None if why is None else asdict(why)


def _known(value: float | None) -> float | None:
    """Return a number that JSON can hold: NaN becomes null."""
    return value if value is not None and math.isfinite(value) else None


def _job_view(detector: Detector, pictures: Pictures, detection: Detection) -> JobView:
    longest: dict[str, Deviation] = {}
    for deviation in sorted(detection.deviations, key=lambda s: s.seconds / s.threshold):
        longest[deviation.node] = deviation
    ranking = [
        NodeView(node, score, longest.get(node))
        for node, score in sorted(detection.fault_scores.items(), key=lambda kv: (-kv[1], kv[0]))
    ]
    state = "running" if detection.job.running else "ended"
    if detection.not_compared:
        state += f", not compared: {detection.not_compared}"
    return JobView(
        shortened(detection.job.job_id),
        detection.job.nodes,
        state,
        _ago(detector.clock() - detection.time),
        [_finding_view(detector, pictures, detection, found) for found in detection.findings],
        ranking,
        detection.not_compared,
        diagnosis_views(detector.snapshot, detection.job.job_id),
        pace_text(detection.pace),
    )


def _finding_view(
    detector: Detector, pictures: Pictures, detection: Detection, finding: Finding
) -> FindingView:
    if finding.metric == ABSENT:
        sentence, drawn, note = "vanished: its exporter cannot be reached", None, ""
    elif finding.method == EVIDENCE:
        sentence, drawn, note = f"is named by the job itself: {finding.metric}", None, ""
    else:
        sentence = f"differs from its peers in {finding.metric}"
        drawn = pictures.get(detection, finding.metric, finding.node, finding)
        unit = next((m.unit for m in detector.metrics if m.name == finding.metric), "")
        gpu = f" GPU {finding.gpu}" if finding.gpu else ""
        note = f"{finding.metric} in {unit}; red: {finding.node}{gpu}, grey: its peers"
    why = detection.explanations.get(finding)
    return FindingView(
        finding.node,
        finding.gpu,
        finding.metric,
        finding.method,
        finding.severity,
        finding.score,
        datetime.fromtimestamp(finding.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        _ago(detector.clock() - finding.since),
        sentence,
        drawn,
        note,
        why,
        [_row(evidence) for evidence in why.metrics] if why else [],
    )


def _row(evidence: MetricEvidence) -> EvidenceRow:
    low, high = quantity(evidence.low, evidence.unit), quantity(evidence.high, evidence.unit)
    return EvidenceRow(
        evidence.title,
        evidence.gpu,
        evidence.direction,
        quantity(evidence.value, evidence.unit),
        quantity(evidence.median, evidence.unit),
        f"{low} to {high}",
        "" if evidence.factor is None else f"{number(evidence.factor)} times",
        "" if evidence.effects is None else f"{evidence.effects:.1f}",
        datetime.fromtimestamp(evidence.since, UTC).strftime("%H:%M:%S"),
    )


def _chosen(pictures: Pictures, detection: Detection, view: JobView) -> dict[str, Any]:
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
    }


def _ago(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s ago"
    return f"{whole // 60} min ago" if whole < 7200 else f"{whole // 3600} h ago"
