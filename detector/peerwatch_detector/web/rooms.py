"""The rooms beside fleet, job and node: incidents, actions, reliability."""

from __future__ import annotations

from functools import partial

import flask
from werkzeug.exceptions import NotFound

from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.actions.view import DAYS, actions_view
from peerwatch_detector.web.incident.address import Address
from peerwatch_detector.web.incident.as_text import as_text
from peerwatch_detector.web.incident.incidents import Incidents, timeline_picture
from peerwatch_detector.web.incident.listed import CHOICES
from peerwatch_detector.web.incident.view import IncidentView
from peerwatch_detector.web.kept import Kept
from peerwatch_detector.web.reliability.view import reliability_view

# A usual scrape interval: nothing new is known before.
_KEPT_SECONDS = 15.0


def add_rooms(app: flask.Flask, detector: Detector, history: History | None) -> None:
    """Let an application serve the rooms.

    Parameters
    ----------
    app
        Of the web UI, with the converter ``anything``.
    detector
        The running one.
    history
        Where the past is read; None: the rooms say that they know nothing.
    """
    incidents = Incidents(detector, history)
    # What many have open is read once for all of them.
    actions = Kept(lambda _: actions_view(history, detector.clock()), _KEPT_SECONDS)
    books = Kept(lambda _: reliability_view(history, detector.clock()), _KEPT_SECONDS)

    @app.get("/incidents")
    def incident_list() -> str:
        asked = flask.request.args.get("days", "")
        days = asked if asked in CHOICES else next(iter(CHOICES))
        return flask.render_template(
            "incidents.html", list=incidents.listed(days), days=days, choices=CHOICES
        )

    @app.get("/incidents/<when>/<anything:job_id>")
    def view_of_incident(when: str, job_id: str) -> flask.Response | str | tuple[str, int]:
        address = Address.of(when, job_id)
        if address is None:
            raise NotFound(
                f"{when!r} is no time of an incident, such as 20261121T184820Z; /incidents lists "
                "them."
            )
        found = incidents.get(address, flask.request.args.get("node", ""))
        if not isinstance(found, IncidentView):
            return flask.render_template("incident-unknown.html", job_id=job_id, why=found), 503
        url = partial(flask.url_for, "view_of_incident", when=when, job_id=job_id)
        text = as_text(found, url(_external=True))
        if flask.request.args.get("as") == "text":
            return flask.Response(text, content_type="text/plain; charset=utf-8")
        return flask.render_template(
            "incident.html",
            incident=found,
            text=text,
            runs=any(each.job.job_id == job_id for each in detector.snapshot.detections),
            picture=timeline_picture(found.diagram),
        )

    @app.get("/actions")
    def actions_room() -> str:
        return flask.render_template(
            "actions.html",
            room=actions.get(""),
            days=DAYS,
            link=detector.config.links.responder,
        )

    @app.get("/reliability")
    def reliability_room() -> str:
        return flask.render_template(
            "reliability.html",
            room=books.get(""),
            link=detector.config.links.reliability,
        )
