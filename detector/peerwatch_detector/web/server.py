"""The detector's HTTP server: the common one, in front of the web UI and the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.server import HttpServer
from peerwatch_detector.service.signing import Signer, make_signer
from peerwatch_detector.web.app import create_app
from peerwatch_detector.web.wsgi import WsgiAdapter

if TYPE_CHECKING:
    from peerwatch_common.web.facts import WebFacts
    from peerwatch_common.web.security import SecurityFile
    from peerwatch_detector.reading.history_reader import History
    from peerwatch_detector.service.detector import Detector

PROGRAM = "peerwatch-detector"

# Reading has stalled when nothing came for so many cycles, or so long. Chosen: a job that fails is
# left alone for up to five cycles (schedule.py); and four scrapes of 15 s where cycles are short.
_STALLED_CYCLES, _STALLED_SECONDS = 8, 60.0


def application(
    detector: Detector,
    facts: WebFacts,
    history: History | None = None,
    *,
    signer: Signer | None = None,
    compiled: bool = False,
) -> WithHealth:
    """Return what answers the requests to a running detector.

    Parameters
    ----------
    detector, facts, history, signer
        See ``create_app``.
    compiled
        Whether the templates are compiled now, instead of each as it is first asked for.
    """

    def readiness() -> tuple[bool, str]:
        if detector.snapshot.discovered is None:
            return False, "Prometheus has not been read yet."
        if stalled := _stalled_reading(detector):
            return False, stalled
        return True, f"{PROGRAM} is ready."

    app = create_app(detector, facts, history, signer=signer)
    if compiled:
        # Or who comes first waits for it, longer than for anything else of the view.
        for name in app.jinja_env.list_templates():
            app.jinja_env.get_template(name)
    return WithHealth(PROGRAM, readiness, WsgiAdapter(app))


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
    # A first read that hangs is late; those that fail in time are not.
    failing = snapshot.unread_since is not None and snapshot.unread_since < oldest
    if failing or (never and max(snapshot.backlog.lateness.values()) > limit):
        return "No job's samples have been read from Prometheus yet."
    return ""


def make_server(
    detector: Detector, security: SecurityFile, facts: WebFacts, history: History | None = None
) -> HttpServer:
    """Return a server that listens where the configuration says.

    Raises
    ------
    ConfigError
        If the key of signed pictures cannot be used.
    ListenError
        If the address cannot be listened on.
    """
    config = detector.config
    signer = make_signer(config.web.pictures)
    return HttpServer(
        PROGRAM,
        config.listen.address,
        config.listen.port,
        application(detector, facts, history, signer=signer, compiled=True),
        security=security.current,
        max_connections=config.web.max_connections,
        facts=facts,
        needs_login=lambda request: (
            signer is None or not signer.opens(request.path, request.query, detector.clock())
        ),
    )
