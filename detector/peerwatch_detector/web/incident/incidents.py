"""Serves incidents: read when somebody looks, and kept for all who do."""

from __future__ import annotations

import json
from functools import partial

import flask
from markupsafe import Markup

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.history_reader import History
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.incident.address import Address
from peerwatch_detector.web.incident.gather import gather
from peerwatch_detector.web.incident.listed import IncidentList, listed
from peerwatch_detector.web.incident.view import IncidentView, incident_view
from peerwatch_detector.web.kept import Kept
from peerwatch_detector.web.root import diagram

# What is over does not change, but for alerts that resolve later; what stands is read again with
# each refresh of an open view (10 s), the list with each cycle (15 s), what failed sooner.
_OPEN_SECONDS, _OVER_SECONDS, _LIST_SECONDS, _FAILED_SECONDS = 10.0, 600.0, 15.0, 3.0


class Incidents:
    """Makes the views of incidents.

    Parameters
    ----------
    detector
        The running one.
    history
        Where the past is read; None: nothing is.
    """

    def __init__(self, detector: Detector, history: History | None) -> None:
        self._views: Kept[IncidentView | str] | None = None
        self._lists: Kept[IncidentList] | None = None
        if history is not None:
            self._views = Kept(partial(_read, detector, history), _kept_seconds)
            self._lists = Kept(
                lambda days: listed(history, int(days), detector.clock()), _LIST_SECONDS
            )

    def get(self, address: Address, node: str) -> IncidentView | str:
        """Return an incident, or why it cannot be shown."""
        if self._views is None:
            return "Incidents are read from Prometheus, which this detector does not ask."
        return self._views.get(json.dumps([address.job_id, address.begun, node]))

    def listed(self, days: str) -> IncidentList:
        """Return the incidents of the last days."""
        if self._lists is None:
            return IncidentList(note="Prometheus is not asked.")
        return self._lists.get(days)


def _read(detector: Detector, history: History, key: str) -> IncidentView | str:
    job_id, begun, node = json.loads(key)
    try:
        found = gather(detector, history, Address(job_id, begun), node)
    except ReadError as error:
        return f"Prometheus did not answer: {error}"
    return incident_view(found, detector.config, detector.metrics, detector.clock())


def _kept_seconds(found: IncidentView | str) -> float:
    if isinstance(found, str):
        return _FAILED_SECONDS
    return _OPEN_SECONDS if found.open or found.missing else _OVER_SECONDS


def timeline_picture(found: diagram.Diagram | None) -> Markup | None:
    """Return the picture of a timeline, within a request."""
    if found is None:
        return None
    return Markup(  # noqa: S704 - the template escapes
        flask.render_template(
            "timeline.svg",
            diagram=found,
            width=diagram.WIDTH,
            left=diagram.LEFT,
            right=diagram.RIGHT,
        )
    )
