"""An answer, and its bytes on the wire."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import h11

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_common.web.pieces import Pieces

TEXT = "text/plain; charset=utf-8"

# On every answer, also on refusals: what the views need is allowed and nothing else, so that a name
# from the node or the job, should it ever slip through unescaped, does nothing in a browser.
# A web configuration's http_server_config.headers wins.
SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "deny"),
    ("Referrer-Policy", "no-referrer"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'",
    ),
)

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


class Parts(Protocol):
    """A body that is sent as it is made.

    ``close`` is called once it is sent, or will not be; and perhaps once more.
    """

    def __iter__(self) -> Iterator[bytes]:
        """Return the parts."""

    def close(self) -> None:
        """Let go of what they are made from."""


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
    parts
        The body in place of ``body``, for one that should never be in memory as a whole.
    """

    status: int
    body: bytes | Pieces
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    parts: Parts | None = None


def text(status: int, sentence: str, *headers: tuple[str, str]) -> Response:
    """Return a sentence as an answer."""
    return Response(status, f"{sentence}\n".encode(), headers=headers)


def to_bytes(
    http: h11.Connection,
    response: Response,
    body: bytes,
    *,
    with_body: bool,
    keep_alive: bool,
    now: float,
) -> bytes:
    """Return an answer in one piece: small ones then are one packet.

    Parameters
    ----------
    http
        The state of the connection.
    response
        What is answered.
    body
        Its body as it is sent.
    with_body
        Whether it is sent: to a HEAD its length is the whole answer.
    keep_alive
        Whether the connection stays open.
    now
        Unix time in seconds.
    """
    length = ("Content-Length", str(len(body)))
    events: list[h11.Event] = [_head(response, [length], keep_alive=keep_alive, now=now)]
    if with_body:
        events.append(h11.Data(data=body))
    events.append(h11.EndOfMessage())
    return b"".join(http.send(event) or b"" for event in events)


def repeated_bytes(response: Response, body: bytes, *, now: float) -> bytes:
    """Return what ``to_bytes`` does, without h11, which found nothing wrong with the same head.

    Parameters
    ----------
    response
        What is answered, on a connection that stays open.
    body
        Its body as it is sent.
    now
        Unix time in seconds.
    """
    length = ("Content-Length", str(len(body)))
    headers, reason = _head_lines(response, [length], keep_alive=True, now=now)
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"HTTP/1.1 {response.status} {reason}\r\n{lines}\r\n".encode("latin-1") + body


def head_bytes(http: h11.Connection, response: Response, *, keep_alive: bool, now: float) -> bytes:
    """Return the head of an answer whose body follows in parts; parameters as for ``to_bytes``.

    To HTTP/1.1 the parts are chunks, to HTTP/1.0 all that comes until the connection is closed.
    """
    return http.send(_head(response, [], keep_alive=keep_alive, now=now)) or b""


def _head(
    response: Response, length: list[tuple[str, str]], *, keep_alive: bool, now: float
) -> h11.Response:
    headers, reason = _head_lines(response, length, keep_alive=keep_alive, now=now)
    return h11.Response(status_code=response.status, headers=headers, reason=reason)


def _head_lines(
    response: Response, length: list[tuple[str, str]], *, keep_alive: bool, now: float
) -> tuple[list[tuple[str, str]], str]:
    """Return the headers of an answer, and the words for its status."""
    headers = [
        ("Date", _http_date(now)),
        ("Content-Type", response.content_type),
        *length,
        *response.headers,
    ]
    given = {name.lower() for name, _ in response.headers}
    headers += [pair for pair in SECURITY_HEADERS if pair[0].lower() not in given]
    if not keep_alive:
        headers.append(("Connection", "close"))
    return headers, HTTPStatus(response.status).phrase


def _http_date(now: float) -> str:
    # strftime would write the days of the node's language.
    at = time.gmtime(now)
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year} {clock} GMT"
