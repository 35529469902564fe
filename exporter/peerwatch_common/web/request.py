"""Reads HTTP/1.x requests with h11: what a scraper or a browser sends, and nothing else.

h11 decides what a request is. Here it is bounded in size and count, and what these servers have no
use for (another method, a body, two logins) is refused. A server that takes webhooks takes POST
with a body up to its own limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Prometheus sends about 500 bytes; a browser with cookies of other ports some thousand. Chosen:
# several times that.
MAX_HEAD_BYTES = 16384
# Chosen: paths and their parameters have some hundred.
MAX_TARGET_BYTES = 4096
# As http.client of Python has it.
MAX_HEADERS = 100
# A larger body is what is wrong with a request, whatever its method; a smaller one is refused too.
# Chosen: no scraper sends any.
MAX_BODY_BYTES = 4096

# Request Header Fields Too Large (RFC 6585).
_TOO_LARGE = 431
_NO_BODY = "Requests with a body are not served."


class BadRequestError(Exception):
    """The request cannot be served; ``status`` is the answer, the message its text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Parameters
    ----------
    method
        ``GET`` or ``HEAD``, and ``POST`` where bodies are taken.
    path, query
        The target before and after the question mark, still percent-encoded.
    headers
        Values by lower-case name; repeated ones joined by a comma.
    keep_alive
        Whether the client wants to send another one on the same connection.
    client
        The client's address.
    body
        What was posted.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    keep_alive: bool
    client: str
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return a header's value, empty if it was not sent."""
        return self.headers.get(name, "")


class RequestReader:
    """Cuts the bytes of one connection into requests.

    A scraper sends the very same request again and again, byte for byte. What it was understood as
    is kept, and h11 is told of it again only if it is needed for the answer.

    Parameters
    ----------
    receive
        Returns up to so many bytes, at least one; none when the client has ended.
    client
        The client's address.
    max_body_bytes
        The largest body of a POST that is taken; 0: only GET and HEAD are served.

    Attributes
    ----------
    is_head
        Whether the newest request is a HEAD, to which the answer has no body.
    """

    def __init__(
        self, receive: Callable[[int], bytes], client: str, max_body_bytes: int = 0
    ) -> None:
        self._receive = receive
        self._client = client
        self._max_body_bytes = max_body_bytes
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.is_head = False
        # The newest request if it came in one piece and alone, and what it was understood as.
        self._piece = b""
        self._understood: Request | None = None
        self._repeated = False

    @property
    def http(self) -> h11.Connection:
        """The state of the connection, by which answers are written."""
        if self._repeated:
            self._repeated = False
            self._http.receive_data(self._piece.lstrip(b"\r\n"))
            while not isinstance(self._http.next_event(), h11.EndOfMessage):
                pass
        return self._http

    @property
    def is_repeated(self) -> bool:
        """Whether the newest request is the one before, and h11 does not know of it."""
        return self._repeated

    def wait(self) -> bool:
        """Wait for the first byte of a request; return False if the client has ended."""
        if self._http.trailing_data[0]:
            self._piece, self._understood = b"", None
            return True
        while not self._http.trailing_data[0]:
            data = self._receive(MAX_HEAD_BYTES)
            if not data:
                return False
            if self._understood is not None and data == self._piece:
                self._repeated = True
                return True
            self._piece, self._understood = data, None
            # Empty lines before a request are old clients' habit, and harmless (RFC 9112, 2.2).
            if begun := data.lstrip(b"\r\n"):
                self._http.receive_data(begun)
        return True

    def next(self) -> None:
        """Be ready for the next request, after the answer to the newest one."""
        if self._repeated:
            self._repeated = False
        else:
            self._http.start_next_cycle()

    def read(self) -> Request:
        """Return the request whose first byte has come.

        Raises
        ------
        BadRequestError
            If it is malformed or too large: what follows on the connection means nothing then.
        EOFError
            If the client ended in the middle of it.
        """
        if self._repeated and self._understood is not None:
            return self._understood
        request = self._parsed()
        if request.method == "GET" and request.keep_alive and not self._http.trailing_data[0]:
            self._understood = request if self._piece else None
        return request

    def _parsed(self) -> Request:
        event = self._received()
        assert isinstance(event, h11.Request), "nothing else begins a message of a client"
        self.is_head = event.method == b"HEAD"
        method, target, headers = _accepted(event, self._max_body_bytes)
        body = self._body() if method == "POST" else b""
        if method != "POST" and not isinstance(self._event(), h11.EndOfMessage):
            raise BadRequestError(413, _NO_BODY)
        path, _, query = _origin_form(target).partition("?")
        keep_alive = self._http.their_state is h11.DONE
        return Request(method, path, query, headers, keep_alive, self._client, body)

    def _body(self) -> bytes:
        # As long as announced, which was found small enough, or h11 objects.
        parts: list[bytes] = []
        while isinstance(event := self._received(), h11.Data):
            parts.append(bytes(event.data))
        return b"".join(parts)

    def _received(self) -> object:
        while (event := self._event()) is h11.NEED_DATA:
            data = self._receive(MAX_HEAD_BYTES)
            if not data:
                raise EOFError
            self._piece = b""
            self._http.receive_data(data)
        return event

    def _event(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            text = f"The headers exceed {MAX_HEAD_BYTES} bytes."
            if status != _TOO_LARGE:
                # Without what was sent, which may hold a password.
                text = f"The request is malformed: {str(error).partition(':')[0]}."
            raise BadRequestError(status, text) from None


def _accepted(event: h11.Request, max_body_bytes: int) -> tuple[str, str, dict[str, str]]:
    """Return method, target and headers of a request that is small enough and makes sense."""
    if event.http_version not in {b"1.1", b"1.0"}:
        raise BadRequestError(400, "Only HTTP/1.1 and HTTP/1.0 are served.")
    if len(event.target) > MAX_TARGET_BYTES:
        raise BadRequestError(414, f"The target exceeds {MAX_TARGET_BYTES} bytes.")
    if len(event.headers) > MAX_HEADERS:
        raise BadRequestError(_TOO_LARGE, f"There are more than {MAX_HEADERS} headers.")
    if sum(len(name) + len(value) + 4 for name, value in event.headers) > MAX_HEAD_BYTES:
        raise BadRequestError(_TOO_LARGE, f"The headers exceed {MAX_HEAD_BYTES} bytes.")
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name in headers:
            if name == "authorization":
                # It could be one login here and another in a proxy in front.
                raise BadRequestError(400, "The header authorization stands twice.")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    method = event.method.decode("ascii")
    _check_length(method, headers, max_body_bytes)
    methods = ("GET", "HEAD", "POST") if max_body_bytes else ("GET", "HEAD")
    if method not in methods:
        raise BadRequestError(405, f"Only {', '.join(methods[:-1])} and {methods[-1]} are served.")
    return method, event.target.decode("ascii"), headers


def _check_length(method: str, headers: Mapping[str, str], max_body_bytes: int) -> None:
    """Refuse a body before it is read, be it a gigabyte."""
    length = int(headers.get("content-length", "0"))
    if method != "POST" or not max_body_bytes:
        # Before the method is looked at: a large body is what is wrong, whatever it is for.
        if "transfer-encoding" in headers or length > MAX_BODY_BYTES:
            raise BadRequestError(413, _NO_BODY)
        return
    if "content-length" not in headers:
        raise BadRequestError(411, "A body is taken with its length (Content-Length) only.")
    if length > max_body_bytes:
        raise BadRequestError(
            413, f"The body has {length} bytes; up to {max_body_bytes} are taken."
        )


def _origin_form(target: str) -> str:
    """Return path and query of a target, also where a proxy's client named the host in it."""
    if target.startswith(("http://", "https://")):
        _, slash, rest = target.partition("//")[2].partition("/")
        return slash + rest if slash else "/"
    if not target.startswith("/"):
        raise BadRequestError(400, "The target does not start with a slash.")
    return target
