"""Reads HTTP/1.x requests, strictly: what a scraper or a browser sends, and nothing else.

The standard library's parser loads 8 MiB (http.client, ssl, email); every training node would pay
for that. Here a request is a line and some headers, bounded in size, count and time. What is
ambiguous (a body, two lengths, folded lines, a bare line feed) is refused, not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Prometheus sends about 500 bytes; a browser with cookies of other ports some thousand.
MAX_HEAD_BYTES = 16384
MAX_TARGET_BYTES = 4096
MAX_HEADERS = 100

_LINE = re.compile(rb"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/1\.([01])")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
# Twice in one request, these could mean one thing here and another in a proxy in front.
_SINGLE = frozenset({"host", "content-length", "transfer-encoding", "authorization"})


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
        ``GET`` or ``HEAD``.
    path, query
        The target before and after the question mark, still percent-encoded.
    headers
        Values by lower-case name; repeated ones joined by a comma.
    keep_alive
        Whether the client wants to send another one on the same connection.
    client
        The client's address.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    keep_alive: bool
    client: str

    def header(self, name: str) -> str:
        """Return a header's value, empty if it was not sent."""
        return self.headers.get(name, "")


class RequestReader:
    """Cuts the bytes of one connection into requests.

    Parameters
    ----------
    receive
        Returns up to so many bytes, at least one; none when the client has ended.
    client
        The client's address.
    """

    def __init__(self, receive: Callable[[int], bytes], client: str) -> None:
        self._receive = receive
        self._client = client
        self._buffer = b""

    def wait(self) -> bool:
        """Wait for the first byte of a request; return False if the client has ended."""
        # Empty lines between requests are old clients' habit, and harmless.
        self._buffer = self._buffer.lstrip(b"\r\n")
        while not self._buffer:
            data = self._receive(MAX_HEAD_BYTES)
            if not data:
                return False
            self._buffer = data.lstrip(b"\r\n")
        return True

    def read(self) -> Request:
        """Return the request whose first byte has come.

        Raises
        ------
        BadRequestError
            If it is malformed or too large: what follows on the connection means nothing then.
        EOFError
            If the client ended in the middle of it.
        """
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BadRequestError(431, f"The headers exceed {MAX_HEAD_BYTES} bytes.")
            data = self._receive(MAX_HEAD_BYTES)
            if not data:
                raise EOFError
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            raise BadRequestError(431, f"The headers exceed {MAX_HEAD_BYTES} bytes.")
        return parse(head, self._client)


def parse(head: bytes, client: str) -> Request:
    """Return the request of a head: request line and headers without the empty line.

    Raises
    ------
    BadRequestError
        If it is no request that can be served.
    """
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise BadRequestError(400, "The request line is not METHOD TARGET HTTP/1.1.")
    method, target, minor = (part.decode("ascii") for part in line.groups())
    if len(target) > MAX_TARGET_BYTES:
        raise BadRequestError(414, f"The target exceeds {MAX_TARGET_BYTES} bytes.")
    headers = _headers(lines)
    if method not in {"GET", "HEAD"}:
        raise BadRequestError(405, "Only GET and HEAD are served.")
    if minor == "1" and "host" not in headers:
        raise BadRequestError(400, "The Host header is missing.")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "Requests with a body are not served.")
    path, _, query = _origin_form(target).partition("?")
    return Request(method, path, query, headers, _keeps_alive(headers, minor), client)


def _headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise BadRequestError(431, f"There are more than {MAX_HEADERS} headers.")
    headers: dict[str, str] = {}
    for line in lines:
        raw_name, colon, raw_value = line.partition(b":")
        if not colon or not _NAME.fullmatch(raw_name) or not _VALUE.fullmatch(raw_value):
            raise BadRequestError(400, "A header line is malformed.")
        name = raw_name.decode("ascii").lower()
        value = raw_value.decode("latin-1").strip(" \t")
        if name in headers:
            if name in _SINGLE:
                raise BadRequestError(400, f"The header {name} stands twice.")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _origin_form(target: str) -> str:
    """Return path and query of a target, also where a proxy's client named the host in it."""
    if target.startswith(("http://", "https://")):
        _, slash, rest = target.partition("//")[2].partition("/")
        return slash + rest if slash else "/"
    if not target.startswith("/"):
        raise BadRequestError(400, "The target does not start with a slash.")
    return target


def _keeps_alive(headers: Mapping[str, str], minor: str) -> bool:
    wishes = {wish.strip().lower() for wish in headers.get("connection", "").split(",")}
    return "keep-alive" in wishes if minor == "0" else "close" not in wishes
