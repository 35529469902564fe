"""A small real HTTP server that answers as a test tells it to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs


@dataclass
class Request:
    """What the server was asked."""

    path: str
    form: dict[str, str]
    headers: dict[str, str]


Response = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakePrometheus:
    """The server's address, its next response, and what it was asked."""

    url: str
    response: Response
    requests: list[Request] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)


def send(status: int, body: bytes, content_type: str = "application/json") -> Response:
    """Answer with a whole body."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def success(kind: str, result: list[dict[str, Any]]) -> Response:
    """Answer as the query API does."""
    data = {"status": "success", "data": {"resultType": kind, "result": result}}
    return send(200, json.dumps(data).encode())


def refuse(status: int, kind: str, text: str) -> Response:
    """Answer with an error of the query API."""
    data = {"status": "error", "errorType": kind, "error": text}
    return send(status, json.dumps(data).encode())


def cut_off(body: bytes, announced: int) -> Response:
    """Send less than announced and close."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(announced))
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def broken_chunks(handler: BaseHTTPRequestHandler) -> None:
    """Close in the middle of a chunk."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'10\r\n{"status":"succe\r\n40\r\nss')


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def fake_prometheus(response: Response) -> Iterator[FakePrometheus]:
    """Run the server on a free port."""
    known: list[FakePrometheus] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            form = {k: v[0] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
            known[0].requests.append(Request(self.path, form, dict(self.headers)))
            known[0].response(self)

        def end_headers(self) -> None:
            # One connection per request: tests leave no idle ones behind.
            self.send_header("Connection", "close")
            super().end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    known.append(FakePrometheus(f"http://127.0.0.1:{server.server_port}", response))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield known[0]
    finally:
        known[0].release.set()
        server.shutdown()
        server.server_close()
        thread.join()
