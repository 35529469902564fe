"""An answer, and its bytes on the wire."""

from __future__ import annotations

import time
from dataclasses import dataclass

TEXT = "text/plain; charset=utf-8"

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    414: "URI Too Long",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(frozen=True, slots=True)
class Response:
    """One answer.

    Parameters
    ----------
    status
        HTTP status code.
    body
        The bytes, not compressed.
    content_type
        With its character set.
    headers
        Further headers.
    """

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


def text(status: int, sentence: str, *headers: tuple[str, str]) -> Response:
    """Return a sentence as an answer."""
    return Response(status, f"{sentence}\n".encode(), headers=headers)


def head(response: Response, *, length: int, keep_alive: bool, now: float) -> bytes:
    """Return status line and headers up to and with the empty line.

    Parameters
    ----------
    response
        What is answered.
    length
        Bytes of the body as it is sent.
    keep_alive
        Whether the connection stays open.
    now
        Unix time in seconds.
    """
    lines = [
        f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Error')}",
        f"Date: {_http_date(now)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {length}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    if not keep_alive:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _http_date(now: float) -> str:
    # strftime would write the days of the node's language.
    at = time.gmtime(now)
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year} {clock} GMT"
