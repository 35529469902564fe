"""Runs the responder beside its HTTP server until a signal ends it."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_common.web.facts import WebFacts
from peerwatch_common.web.health import WithHealth
from peerwatch_common.web.security import SecurityFile
from peerwatch_common.web.server import HttpServer
from peerwatch_common.web.until_signal import JOIN_SECONDS, serve_until_signal
from peerwatch_responder import __version__
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.retry.before_restart import make_log_advisor
from peerwatch_responder.run.books import Books, Unwritten
from peerwatch_responder.run.responder import Responder
from peerwatch_responder.run.site import Site
from peerwatch_responder.webhook.app import WebhookApp
from peerwatch_responder.webhook.payload import MAX_BYTES

if TYPE_CHECKING:
    from peerwatch_common.web.security import Security
    from peerwatch_responder.settings.load import Settings

_LOG = logging.getLogger("peerwatch_responder")

PROGRAM = "peerwatch-responder"


def run_responder(settings: Settings) -> None:
    """Take alerts and answer them until SIGTERM or SIGINT.

    Raises
    ------
    ConfigError
        With every mistake in the web configuration file.
    JournalError
        If the journal cannot be used.
    ListenError
        If the address cannot be listened on.
    """
    config = settings.config
    if config.retry.enabled:
        settings = replace(settings, advisor=make_log_advisor(config))
    facts = WebFacts()
    security = SecurityFile(config.web.config_file, facts)
    if config.dry_run:
        _serve(settings, Books(Unwritten()), facts, security)
        return
    with Journal(config.journal) as journal:
        _serve(settings, Books(journal, journal.rows), facts, security)


def _serve(settings: Settings, books: Books, facts: WebFacts, security: SecurityFile) -> None:
    config = settings.config
    responder = Responder(settings, books)
    rejected: Counter[str] = Counter()

    def reject(reason: str) -> None:
        rejected[reason] += 1

    site = Site(responder, rejected, config.web.token_file)
    app = WebhookApp(responder.receive, site, config.web.token_file, reject)

    def readiness() -> tuple[bool, str]:
        if responder.plan is None:
            return False, "Nothing has been decided yet."
        return True, f"{PROGRAM} is ready."

    server = HttpServer(
        PROGRAM,
        config.listen.address,
        config.listen.port,
        WithHealth(PROGRAM, readiness, app),
        security=security.current,
        max_connections=config.web.max_connections,
        facts=facts,
        max_body_bytes=MAX_BYTES,
    )
    _LOG.info(
        "started version=%s listen=%s:%d tls=%s dry_run=%s rules=%d",
        *(__version__, config.listen.address, server.port, _tls(security.current())),
        *("yes" if config.dry_run else "no", len(config.policy.rules)),
    )
    if config.dry_run:
        _LOG.info("this is a dry run: all is decided, nothing is done")
    serve_until_signal(server, security, responder.run, responder.stop, _LOG)
    # A step that hangs is looked at when it runs again.
    responder.join(JOIN_SECONDS)


def _tls(security: Security) -> str:
    return "on" if security.context is not None else "off"
