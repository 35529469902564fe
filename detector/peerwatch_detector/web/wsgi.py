"""Answers requests of the common server by a WSGI application."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

from peerwatch_common.web.response import TEXT, Response

if TYPE_CHECKING:
    from peerwatch_common.web.request import Request

# Written by the server itself.
_LEFT_OUT = frozenset({"content-length", "content-type", "connection", "date"})


class WsgiApplication(Protocol):
    """What PEP 3333 calls an application; flask's are ones."""

    def __call__(self, environ: dict[str, Any], start_response: Any, /) -> Iterable[bytes]:  # noqa: ANN401 - as PEP 3333 has it
        """Return the body, once ``start_response`` has been given status and headers."""


class WsgiAdapter:
    """Answers requests by a WSGI application.

    Parameters
    ----------
    application
        Answers GET; of the answer to a HEAD the server sends the headers.
    """

    def __init__(self, application: WsgiApplication) -> None:
        self._application = application

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""
        started: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], _error: object = None
        ) -> None:
            started.append((status, headers))

        chunks = self._application(environment(request), start_response)
        try:
            body = b"".join(chunks)
        finally:
            if close := getattr(chunks, "close", None):
                close()
        status, headers = started[-1]
        content_type = next((v for name, v in headers if name.lower() == "content-type"), TEXT)
        others = tuple(pair for pair in headers if pair[0].lower() not in _LEFT_OUT)
        return Response(int(status[:3]), body, content_type, others)


def environment(request: Request) -> dict[str, Any]:
    """Return what PEP 3333 calls the environ of a request."""
    headers = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()
    }
    return {
        **headers,
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.client,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
