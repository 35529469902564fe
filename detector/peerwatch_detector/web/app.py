"""The detector's endpoints: /metrics for Prometheus, the web UI for a person, JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flask
from werkzeug.exceptions import NotFound
from werkzeug.routing import PathConverter

from peerwatch_common.metrics.exposition import OPENMETRICS_CONTENT_TYPE, TEXT_CONTENT_TYPE
from peerwatch_common.metrics.label_length import shortened
from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.negotiation import prefers_openmetrics
from peerwatch_detector import __version__
from peerwatch_detector.config.titles import metric_title
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.metrics import Exposition
from peerwatch_detector.service.signing import PATH, PNG_PATH, SignatureError, Signer
from peerwatch_detector.web.alerts import Firing, FiringAlerts
from peerwatch_detector.web.diagnoses import diagnoses_json
from peerwatch_detector.web.fleet.view import CHOICES, Asked, fleet_view
from peerwatch_detector.web.job.as_json import all_short, job_json
from peerwatch_detector.web.job.findings import finding_view
from peerwatch_detector.web.job.view import chosen_picture, incident_of, job_view
from peerwatch_detector.web.node.view import node_view
from peerwatch_detector.web.notified import notified_picture
from peerwatch_detector.web.pictures import Pictures
from peerwatch_detector.web.rooms import add_rooms
from peerwatch_detector.web.root.part import RootParts
from peerwatch_detector.web.root.view import root_of_job_json
from peerwatch_detector.web.segments import HeatMaps
from peerwatch_detector.web.terms import term

# So many findings are explained below the list of jobs; the others are in their jobs' views.
# Chosen: they fill one screen.
_EXPLAINED = 5


class _Anything(PathConverter):
    """The rest of an address: ids such as namespace/name hold slashes, some begin with one."""

    regex = "(?s:.+)"
    part_isolating = False


def create_app(
    detector: Detector,
    facts: WebFacts,
    history: History | None = None,
    *,
    signer: Signer | None = None,
) -> flask.Flask:
    """Return the WSGI application over a running detector.

    Parameters
    ----------
    detector, facts
        What is shown.
    history
        Where the past is read, for incidents, actions and reliability; None: they know nothing.
    signer
        Of the addresses of pictures in notifications; None serves none.
    """
    app = flask.Flask(__name__)
    app.url_map.converters["anything"] = _Anything
    app.url_map.merge_slashes = False
    # Lengths that are meant, as of a picture's lines and of addresses, pass with the filter e.
    app.jinja_env.finalize = _short
    app.jinja_env.filters["short"] = shortened
    app.jinja_env.filters["title_of"] = lambda name: metric_title(name, detector.metrics)
    exposition = Exposition(lambda: detector.snapshot, facts, detector.reloads, signer)
    pictures = Pictures(detector)
    heat_maps = HeatMaps(detector.instants)
    roots = RootParts(detector)
    firing = _firing(detector, history)

    @app.get("/metrics")
    def metrics() -> flask.Response:
        openmetrics = prefers_openmetrics(flask.request.headers.get("Accept", ""))
        content_type = OPENMETRICS_CONTENT_TYPE if openmetrics else TEXT_CONTENT_TYPE
        return flask.Response(exposition.render(openmetrics=openmetrics), content_type=content_type)

    @app.get("/api/v1/jobs")
    def jobs() -> dict[str, Any]:
        snapshot = detector.snapshot
        found = [
            job_json(detection)
            | {
                "diagnoses": diagnoses_json(snapshot, detection.job.job_id),
                "root": root_of_job_json(snapshot.diagnoses, detection.job.job_id),
            }
            for detection in snapshot.detections
        ]
        return {"preparing": snapshot.preparing, "jobs": all_short(found)}

    @app.get("/")
    def index() -> str:
        asked = Asked.of(flask.request.args)
        detections, now = detector.snapshot.detections, detector.clock()
        alerts = firing()
        fleet = fleet_view(detections, asked, roots.summaries, now, alerts.of_job)
        every = [(job, finding) for job in fleet.shown for finding in job.findings]
        return flask.render_template(
            "index.html",
            fleet=fleet,
            choices=CHOICES,
            other_alerts=alerts.of_none(each.job for each in detections),
            alerts_note=alerts.note,
            findings=[finding_view(detector, pictures, *each) for each in every[:_EXPLAINED]],
            left_out=max(0, len(every) - _EXPLAINED),
            job_info=detector.config.discovery.job_info,
        )

    @app.get("/jobs/<anything:job_id>")
    def view_of_job(job_id: str) -> str:
        found = known_detection(job_id)
        everybody = flask.request.args.get("nodes") == "all"
        view = job_view(detector, pictures, found, all_nodes=everybody)
        return flask.render_template(
            "job.html",
            job=view,
            root=roots.get(found.job.job_id),
            alerts=firing().of_job(found.job),
            incident=incident_of(detector.snapshot, found) if history is not None else None,
            chosen=chosen_picture(pictures, found, view),
            metrics=list(found.coverage),
        )

    @app.get("/nodes/<anything:node>")
    def view_of_node(node: str) -> str:
        metric = flask.request.args.get("metric", "")
        view = node_view(detector, pictures, detector.snapshot.detections, node, metric)
        if view is None:
            flask.abort(404, f"No training job has a node {node!r} now; / lists the jobs.")
        return flask.render_template("node.html", node=view, alerts=firing().of_node(view.name))

    @app.get(PNG_PATH)
    @app.get(PATH)
    def picture() -> flask.Response:
        if signer is None:
            flask.abort(404, "No pictures for notifications: web.pictures is not set up.")
        query = flask.request.query_string.decode("latin-1")
        try:
            asked = signer.checked(flask.request.path, query, detector.clock())
        except SignatureError as error:
            flask.abort(403, str(error))
        drawn = notified_picture(detector, asked)
        if drawn is None:
            flask.abort(404, "The samples of this picture are no longer held.")
        if flask.request.path == PNG_PATH:
            answer = flask.Response(drawn.png, content_type="image/png")
        else:
            answer = flask.Response(drawn.svg, content_type="image/svg+xml")
        answer.headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
        answer.headers["Cache-Control"] = "private, max-age=60"
        return answer

    add_rooms(app, detector, history)

    @app.get("/segments/<anything:job_id>")
    def view_of_segments(job_id: str) -> str:
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

    @app.errorhandler(404)
    def not_found(error: NotFound) -> tuple[str, int]:
        return flask.render_template("not-found.html", why=error.description), 404

    @app.context_processor
    def common() -> dict[str, Any]:
        return {
            "version": __version__,
            "method": detector.config.method,
            "up": detector.snapshot.reading.up,
            "preparing": detector.snapshot.preparing,
            "term": term,
        }

    return app


def _firing(detector: Detector, history: History | None) -> Callable[[], Firing]:
    if history is None:
        return Firing
    return FiringAlerts(history, lambda: detector.config.links.runbooks, detector.clock).get


def _short(value: object) -> object:
    """Return what a template writes; a name of a megabyte is written as the metrics have it."""
    return shortened(value) if type(value) is str else value
