"""Runs the service beside its HTTP server until a signal ends it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.security import SecurityFile
from peerwatch_common.web.server import HttpServer
from peerwatch_common.web.until_signal import serve_until_signal
from peerwatch_reliability import __version__
from peerwatch_reliability.run.service import Service
from peerwatch_reliability.run.site import Site

if TYPE_CHECKING:
    from peerwatch_reliability.settings.config import ReliabilityConfig

_LOG = logging.getLogger("peerwatch_reliability")

PROGRAM = "peerwatch-reliability"


def run_service(config: ReliabilityConfig) -> None:
    """Make and publish the books until SIGTERM or SIGINT.

    Raises
    ------
    ConfigError
        With every mistake in the web configuration file.
    ListenError
        If the address cannot be listened on.
    """
    facts = WebFacts()
    security = SecurityFile(config.web.config_file, facts)
    service = Service(config)

    def readiness() -> tuple[bool, str]:
        if service.document is None:
            return False, "The books have not been made yet."
        return True, f"{PROGRAM} is ready."

    server = HttpServer(
        PROGRAM,
        config.listen.address,
        config.listen.port,
        WithHealth(PROGRAM, readiness, Site(service)),
        security=security.current,
        max_connections=config.web.max_connections,
        facts=facts,
    )
    _LOG.info(
        "started version=%s listen=%s:%d window_days=%g",
        *(__version__, config.listen.address, server.port, config.window_days),
    )
    serve_until_signal(server, security, service.run, service.stop, _LOG)
