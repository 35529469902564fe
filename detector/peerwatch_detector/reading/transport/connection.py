"""Connections to the server: one request after the other on each, bodies as a stream of bytes.

Trust, proxies and credentials come from where ``requests`` takes them (REQUESTS_CA_BUNDLE,
HTTPS_PROXY, NO_PROXY, a netrc file, user and password in the URL), so a server that the detector's
other requests reach is reached here too. The requests are http.client's own: a job's cycle is ten
of them, and ``requests`` takes five times the CPU for each (docs/benchmarks.md).
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import requests
from requests.utils import (
    DEFAULT_CA_BUNDLE_PATH,
    get_auth_from_url,
    get_netrc_auth,
    select_proxy,
)

from peerwatch_common.settings.secret_file import read_secret
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.settings import ReadingSettings
from peerwatch_detector.reading.transport.body import Body
from peerwatch_detector.reading.transport.credentials import basic_authentication
from peerwatch_detector.reading.transport.hints import hint_of_failure
from peerwatch_detector.reading.transport.throttle import seconds_of
from peerwatch_detector.reading.transport.timed import TimedResponse

FORM = {"Content-Type": "application/x-www-form-urlencoded"}

# Of a response that is an error; more is not read. Chosen: a proxy's error in HTML fits.
_MAX_ERROR_BYTES = 1 << 16


@dataclass(slots=True)
class Response:
    """The head of a response, and its body yet to be read."""

    url: str
    status: int
    content_type: str
    body: Body
    location: str = ""
    retry_after: float = 0.0


class Connection:
    """One connection that is kept open between requests and opened again when it broke.

    Parameters
    ----------
    settings
        Address, headers, time limits.
    """

    def __init__(self, settings: ReadingSettings) -> None:
        self.settings = settings
        self._target = urlsplit(settings.url.rstrip("/"))
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "peerwatch-detector"}
        self._headers.update(_credentials(settings.url))
        self._headers.update(settings.headers)
        self._connection: http.client.HTTPConnection | None = None
        self._body: Body | None = None
        self._prefix = self._target.path
        self._ended = False
        self._deadline = 0.0

    @property
    def url(self) -> str:
        """Address for messages, without user and password."""
        host = self._target.netloc.rpartition("@")[2]
        return f"{self._target.scheme}://{host}{self._target.path}"

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._body is not None:
            self._body.release()
            self._body = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def end(self) -> None:
        """Break off what is under way in another thread; nothing can be requested any more."""
        self._ended = True
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            # It may be closed, or not be connected yet.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def post(
        self, path: str, content: bytes, headers: Mapping[str, str], deadline: float
    ) -> Response:
        """Send a request and return the head of its response.

        Parameters
        ----------
        path
            Below the base URL.
        content
            The body.
        headers
            Of this request alone.
        deadline
            On the clock of ``time.monotonic``; the response's body is bound by it too.

        Raises
        ------
        ReadError
            If the server cannot be reached or sends no response in time.
        """
        if self._body is not None and not self._body.finished:
            self.close()
        self._deadline = deadline
        idle = self._connection is not None
        try:
            return self._post(path, content, headers)
        except (http.client.HTTPException, OSError, ValueError) as error:
            self.close()
            # A server may close a connection that was idle; only then a second try makes sense.
            broken = isinstance(error, ConnectionError | http.client.BadStatusLine)
            if not (idle and broken):
                raise self._failure(error) from error
        try:
            return self._post(path, content, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise self._failure(error) from error

    def _post(self, path: str, content: bytes, headers: Mapping[str, str]) -> Response:
        seconds = self._remaining_seconds()
        connection = self._connection = self._connection or self._open(seconds)
        if connection.sock is None:
            connection.timeout = seconds
            connection.connect()
        # Checked once there is a socket: whoever ends it later finds that.
        if self._ended:
            raise ConnectionAbortedError("the reader was closed")
        connection.sock.settimeout(seconds)
        all_headers = {**self._headers, **self._token(), **headers}
        connection.request("POST", f"{self._prefix}/{path}", content, all_headers)
        response = connection.getresponse()
        url = f"{self.url}/{path}"
        self._body = Body(response, url, self.settings, self.close)
        content_type = response.headers.get("Content-Type", "")
        location = response.headers.get("Location", "")
        retry_after = seconds_of(
            response.headers.get("Retry-After", ""), response.headers.get("Date", ""), time.time()
        )
        return Response(url, response.status, content_type, self._body, location, retry_after)

    def _remaining_seconds(self) -> float:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def _token(self) -> dict[str, str]:
        """Return the header for the token's file, as it is now: tokens are exchanged in it."""
        path = self.settings.bearer_token_file
        if path is None:
            return {}
        try:
            token = read_secret(Path(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ReadError(
                "unreachable",
                f"{self.url} cannot be queried: prometheus.bearer_token_file {path!r} cannot be "
                f"read: {type(error).__name__}; check that it is there and whose it is.",
            ) from error
        if not token:
            raise ReadError(
                "unreachable",
                f"{self.url} cannot be queried: prometheus.bearer_token_file {path!r} is empty; "
                "write the token into it.",
            )
        return {"Authorization": f"Bearer {token}"}

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection that is not connected yet, through a proxy if there is one."""
        environment = requests.Session().merge_environment_settings(
            self.settings.url, {}, True, None, None
        )
        proxy = select_proxy(self.settings.url, environment["proxies"])
        secure = self._target.scheme == "https"
        # Always given: without a port http.client takes the end of an IPv6 address for one.
        # Only a proxy of plain HTTP wants the whole address in the request.
        self._prefix = self._target.path if secure or not proxy else self.url
        place, host = self._target, self._target.hostname or ""
        if proxy:
            place = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        connection: http.client.HTTPConnection
        if secure:
            context = _trust(environment["verify"])
            connection = http.client.HTTPSConnection(
                place.hostname or "", _port(place), timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(
                place.hostname or "", _port(place), timeout=timeout
            )
        timed = partial(TimedResponse, remaining_seconds=self._remaining_seconds)
        connection.response_class = timed  # type: ignore[assignment]
        if proxy and secure:
            connection.set_tunnel(host, _port(self._target), _proxy_credentials(place))
        elif proxy:
            self._headers.update(_proxy_credentials(place))
        return connection

    def _failure(self, error: BaseException) -> ReadError:
        """Return what a broken connection means."""
        limit = self.settings.timeout_seconds
        if isinstance(error, TimeoutError):
            return ReadError(
                "timeout",
                f"{self.url} did not answer within {limit:g} s; {self.settings.after_timeout}",
            )
        if isinstance(error, ValueError) and not isinstance(error, OSError):
            # Its text may hold a header's value, which is a secret.
            return ReadError(
                "unreachable",
                f"{self.url} cannot be queried: the address or a header is not valid; check "
                "prometheus.url and prometheus.headers.",
            )
        if isinstance(error, http.client.IncompleteRead | http.client.LineTooLong):
            return ReadError("truncated", f"{self.url} broke off in mid-response: {error!r}.")
        hint = hint_of_failure(error, self._target.scheme)
        return ReadError(
            "unreachable",
            f"{self.url} cannot be reached: {error}; "
            f"{hint or 'check prometheus.url and that the server runs'}.",
        )


def _port(place: SplitResult) -> int:
    return place.port or (443 if place.scheme == "https" else 80)


def read_text(response: Response) -> bytes:
    """Return the beginning of the body of a response that is an error."""
    text = bytearray()
    buffer = memoryview(bytearray(_MAX_ERROR_BYTES))
    while len(text) < _MAX_ERROR_BYTES and (count := response.body.read_into(buffer)):
        text += buffer[:count]
    return bytes(text)


def _credentials(url: str) -> dict[str, str]:
    """Return the header for user and password of the URL, or of a netrc file."""
    user, password = get_auth_from_url(url)
    found = (user, password) if user or password else get_netrc_auth(url)
    return basic_authentication(*found) if found else {}


def _proxy_credentials(place: SplitResult) -> dict[str, str]:
    user, password = get_auth_from_url(place.geturl())
    known = basic_authentication(user, password) if user else {}
    return {f"Proxy-{name}": value for name, value in known.items()}


def _trust(verify: bool | str | None) -> ssl.SSLContext:
    """Return whom to trust: a bundle's file or folder, or the one that requests brings."""
    bundle = verify if isinstance(verify, str) else DEFAULT_CA_BUNDLE_PATH
    if os.path.isdir(bundle):  # noqa: PTH112 - requests takes a text
        return ssl.create_default_context(capath=bundle)
    return ssl.create_default_context(cafile=bundle)
