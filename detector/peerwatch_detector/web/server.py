"""The detector's HTTP server: the common one, in front of the web UI and the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.server import HttpServer
from peerwatch_detector.web.app import create_app
from peerwatch_detector.web.wsgi import WsgiAdapter

if TYPE_CHECKING:
    from peerwatch_common.web.facts import WebFacts
    from peerwatch_common.web.security import SecurityFile
    from peerwatch_detector.service.detector import Detector

PROGRAM = "peerwatch-detector"

# Reading has stalled when nothing came for so many cycles, or so long.
_STALLED_CYCLES, _STALLED_SECONDS = 8, 60.0


def application(detector: Detector, facts: WebFacts) -> WithHealth:
    """Return what answers the requests to a running detector."""

    def readiness() -> tuple[bool, str]:
        if detector.snapshot.discovered is None:
            return False, "Prometheus has not been read yet."
        if stalled := _stalled_reading(detector):
            return False, stalled
        return True, f"{PROGRAM} is ready."

    return WithHealth(PROGRAM, readiness, WsgiAdapter(create_app(detector, facts)))


def _stalled_reading(detector: Detector) -> str:
    """Return what has not been read for several cycles; empty if all goes on."""
    snapshot, config = detector.snapshot, detector.config
    # A read may take its whole deadline, and a job that fails is left alone for some cycles.
    limit = (
        max(_STALLED_SECONDS, _STALLED_CYCLES * config.cycle_seconds)
        + config.prometheus.reading.deadline_seconds
    )
    oldest = detector.clock() - limit
    if snapshot.discovered is not None and snapshot.discovered < oldest:
        return f"The list of jobs has not been read from Prometheus for {limit:.0f} s."
    newest = max(snapshot.last_success.values(), default=None)
    never = newest is None and bool(snapshot.backlog.lateness)
    if newest is not None and newest < oldest:
        return f"No job's samples have been read from Prometheus for {limit:.0f} s."
    if never and max(snapshot.backlog.lateness.values()) > limit:
        return "No job's samples have been read from Prometheus yet."
    return ""


def make_server(detector: Detector, security: SecurityFile, facts: WebFacts) -> HttpServer:
    """Return a server that listens where the configuration says.

    Raises
    ------
    ListenError
        If the address cannot be listened on.
    """
    config = detector.config
    return HttpServer(
        PROGRAM,
        config.listen.address,
        config.listen.port,
        application(detector, facts),
        security=security.current,
        max_connections=config.web.max_connections,
        facts=facts,
    )
