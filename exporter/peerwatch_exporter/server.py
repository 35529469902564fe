"""Serves the page: /metrics, /-/healthy, /-/ready and a small index."""

from __future__ import annotations

import logging
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from peerwatch_exporter.runner import Runner

_LOG = logging.getLogger(__name__)

_INDEX = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>peerwatch-exporter</title></head>
<body><h1>peerwatch-exporter</h1>
<ul><li><a href="/metrics">/metrics</a>: what this node knows about itself</li>
<li><a href="/-/healthy">/-/healthy</a>: the process answers</li>
<li><a href="/-/ready">/-/ready</a>: at least one collector works</li></ul>
</body></html>
"""


class ListenError(Exception):
    """The address cannot be listened on; the message says why and what to do."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Prometheus and a person with a browser; more are not turned away at once.
    request_queue_size = 64

    def server_bind(self) -> None:
        # Not HTTPServer's way: it asks DNS for the host's name, which can hang.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    # A client that sends nothing would hold its thread for ever.
    timeout = 30

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        _LOG.debug("http request detail=%r", format % args)


def make_app(runner: Runner) -> WSGIApplication:
    """Return the WSGI application that serves the runner's page."""
    registry = CollectorRegistry()
    registry.register(runner)

    def answer(environ: WSGIEnvironment) -> tuple[str, str, bytes]:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", "text/plain", b"Only GET and HEAD are served.\n"
        match environ.get("PATH_INFO", "/"):
            case "/metrics":
                encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
                return "200 OK", content_type, encode(registry)
            case "/-/healthy":
                return "200 OK", "text/plain", b"peerwatch-exporter is healthy.\n"
            case "/-/ready":
                return _readiness(runner)
            case "/" | "":
                return "200 OK", "text/html; charset=utf-8", _INDEX
        return "404 Not Found", "text/plain", b"There is /metrics, /-/healthy and /-/ready.\n"

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, content_type, body = answer(environ)
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return app


def _readiness(runner: Runner) -> tuple[str, str, bytes]:
    stuck = runner.stuck()
    if stuck and len(stuck) == len(runner.names):
        text = f"Every collector is stuck: {', '.join(stuck)}.\n"
        return "503 Service Unavailable", "text/plain", text.encode()
    return "200 OK", "text/plain", b"peerwatch-exporter is ready.\n"


class MetricsServer:
    """Listens from the moment it is made; serves between ``start`` and ``stop``.

    Raises
    ------
    ListenError
        If the address is in use, not this machine's, or not permitted.
    """

    def __init__(self, address: str, port: int, app: WSGIApplication) -> None:
        kind = _ServerV6 if ":" in address else _Server
        try:
            self._server = kind((address, port), _Handler)
        except OSError as error:
            raise ListenError(
                f"Cannot listen on {address!r} port {port}: {error.strerror or error}. "
                "Choose another with --listen HOST:PORT or listen.port."
            ) from error
        self._server.set_app(app)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port listened on, also where the system chose it."""
        return int(self._server.server_port)

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and close the socket."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
