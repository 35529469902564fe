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


def application(detector: Detector, facts: WebFacts) -> WithHealth:
    """Return what answers the requests to a running detector."""

    def readiness() -> tuple[bool, str]:
        if detector.snapshot.discovered is None:
            return False, "Prometheus has not been read yet."
        return True, f"{PROGRAM} is ready."

    return WithHealth(PROGRAM, readiness, WsgiAdapter(create_app(detector, facts)))


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
