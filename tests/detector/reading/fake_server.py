"""A small real HTTP server with the query API's paths; a test says what each answers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs


@dataclass
class ReceivedRequest:
    """What came: path, the form of it, headers, the whole body."""

    path: str
    form: dict[str, str]
    headers: dict[str, str]
    body: bytes


Handler = BaseHTTPRequestHandler
Response = Callable[[Handler, ReceivedRequest], None]


def send(
    status: int, body: bytes, content_type: str = "application/json", **headers: str
) -> Response:
    def respond(handler: Handler, _: ReceivedRequest) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return respond


def chunked(
    *pieces: bytes, content_type: str = "application/json", end: bytes = b"0\r\n\r\n"
) -> Response:
    def respond(handler: Handler, _: ReceivedRequest) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        handler.wfile.write(end)
        if end != b"0\r\n\r\n":
            handler.close_connection = True

    return respond


def matrix(result: list[dict[str, Any]], **more: object) -> Response:
    data = {"resultType": "matrix", "result": result}
    return send(200, json.dumps({"status": "success", "data": data, **more}).encode())


def error(status: int, text: str) -> Response:
    return send(status, json.dumps({"status": "error", "error": text}).encode())


COUNT_OF_THREE = send(
    200,
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},'
    b'"value":[1000,"3"]}]}}',
)
NOT_FOUND = send(404, b"404 page not found", "text/plain")


@dataclass
class FakeServer:
    """The address, the responses by the path's last word, and what was asked of them."""

    url: str = ""
    responses: dict[str, Response] = field(default_factory=dict)
    asked: list[ReceivedRequest] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    release: threading.Event = field(default_factory=threading.Event)

    def respond(self, handler: Handler, asked: ReceivedRequest) -> None:
        probing = asked.form.get("query") == "count_over_time(vector(1)[2s:1s])" or (
            b"peerwatch_probe" in asked.body
        )
        word = asked.path.rpartition("/")[2]
        if probing and word == "query":
            COUNT_OF_THREE(handler, asked)
            return
        if not probing:
            self.asked.append(asked)
        self.responses.get(word, NOT_FOUND)(handler, asked)


@contextmanager
def fake_server(context: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    """Run the server on a free port."""
    known = FakeServer()

    class OurHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            known.connections.add(self.client_address)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            form = {}
            if self.headers["Content-Type"] == "application/x-www-form-urlencoded":
                form = {name: found[0] for name, found in parse_qs(body.decode()).items()}
            known.respond(self, ReceivedRequest(self.path, form, dict(self.headers), body))

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            # A client that hangs up in mid-response is what some tests are about.
            pass

    server = Server(("127.0.0.1", 0), OurHandler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    known.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield known
    finally:
        known.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
