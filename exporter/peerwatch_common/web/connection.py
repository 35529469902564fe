"""One connection, in a thread of its own: handshake, then request after request."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import h11

from peerwatch_common.web.compression import SMALLEST_BYTES
from peerwatch_common.web.negotiation import accepts_gzip
from peerwatch_common.web.request import BadRequestError, RequestReader
from peerwatch_common.web.response import (
    Response,
    head_bytes,
    repeated_bytes,
    text,
    to_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_common.web.compression import GzipCache
    from peerwatch_common.web.facts import WebFacts
    from peerwatch_common.web.request import Request
    from peerwatch_common.web.security import Security

_LOG = logging.getLogger(__name__)

# By default Prometheus waits 10 s for all of a scrape: then it has given up.
HANDSHAKE_SECONDS = 10.0
# From the first byte of a request to its last: as long.
HEAD_SECONDS = 10.0
# Between requests: Prometheus comes back every minute by default; chosen is time to miss one.
IDLE_SECONDS = 150.0
# Chosen: an exposition of 370 KB (docs/benchmarks.md) takes this long at 100 kbit/s.
SEND_SECONDS = 30.0
# For an answer that is made while it is sent: chosen, twice that.
PARTS_SECONDS = 60.0
# Who takes longer to read an answer gives up its place when there is no room: a scraper reads
# megabytes in tenths of a second, and who never reads must not keep others out for longer.
SLOW_READER_SECONDS = 0.5
# A probe that came when there was no room: for its handshake, and for its request. Chosen: less
# than the 5 s that the chart's probes wait.
BRIEF_SECONDS = 3.0
# How long a client that was refused may go on sending before it is cut off. Chosen: many round
# trips.
_DRAIN_SECONDS = 1.0


class AnswersRequests(Protocol):
    """What answers, such as the exporter's ``App``."""

    def answer(self, request: Request) -> Response:
        """Return the answer to a request."""


class Service:
    """What all connections share.

    Parameters
    ----------
    program
        Its name, such as ``peerwatch-exporter``.
    app
        Answers requests.
    security
        Returns what is in force now.
    facts
        Told of refused logins.
    gzip
        Compresses larger bodies; ``None`` sends them as they are.
    clock
        Unix time in seconds.
    max_body_bytes
        The largest body of a POST that is taken; 0: only GET and HEAD are served.
    needs_login
        Whether a request needs the login that the settings ask for; False for one that carries its
        own right, such as a signature.
    """

    def __init__(
        self,
        program: str,
        app: AnswersRequests,
        security: Callable[[], Security],
        facts: WebFacts,
        gzip: GzipCache | None,
        clock: Callable[[], float] = time.time,
        max_body_bytes: int = 0,
        needs_login: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        self.app = app
        self.security = security
        self.facts = facts
        self.gzip = gzip
        self.clock = clock
        self.max_body_bytes = max_body_bytes
        self._program = program
        self._needs_login = needs_login

    def respond(self, request: Request) -> Response:
        """Return the answer to a request of a client that may or may not come in."""
        security = self.security()
        response = self._refusal(security, request) or self._answer(request)
        if not security.headers:
            return response
        headers = (*response.headers, *security.headers)
        return replace(response, headers=headers)

    def _refusal(self, security: Security, request: Request) -> Response | None:
        if security.logins is not None and self._needs_login(request):
            verdict = security.logins.check(request.header("authorization"))
            if verdict.value == "busy":
                return text(503, "Too many logins are being checked.", ("Retry-After", "5"))
            if verdict.value == "wrong":
                self.facts.count_failed_login()
                challenge = f'Basic realm="{self._program}", charset="UTF-8"'
                return text(
                    401, "A user and a password are needed.", ("WWW-Authenticate", challenge)
                )
        if security.limit is not None and not security.limit.allow():
            return text(
                429, "There are more requests than rate_limit allows.", ("Retry-After", "1")
            )
        return None

    def _answer(self, request: Request) -> Response:
        try:
            return self.app.answer(request)
        except Exception:
            _LOG.exception("request failed path=%r", request.path)
            return text(500, f"{self._program} could not answer; its log says why.")


class Connection:
    """Serves one client until it goes, is evicted, or does what it must not.

    Parameters
    ----------
    service
        What all connections share.
    connection
        As accepted.
    client
        The client's address.
    brief
        Whether it serves one request that must come at once.

    Attributes
    ----------
    idle_since
        Monotonic time since when it waits for a whole request, or for the handshake before the
        first; ``None`` while it serves one. Who sends half a request must not keep others out.
    """

    def __init__(
        self, service: Service, connection: socket.socket, client: str, *, brief: bool = False
    ) -> None:
        self._service = service
        self._socket = connection
        self.client = client
        self._brief = brief
        self._deadline = 0.0
        # What h11 had nothing against.
        self._head: object = None
        self._ended = threading.Event()
        self.idle_since: float | None = time.monotonic()
        self._sending_since: float | None = None

    def run(self) -> None:
        """Serve; return when the connection is closed."""
        try:
            self._secure()
            self._serve()
        except (OSError, EOFError) as error:
            _LOG.debug("connection ended client=%s detail=%r", self.client, str(error))
        except Exception:
            # In the middle of an answer: there is no other left to give.
            _LOG.exception("connection broken off client=%s", self.client)
        finally:
            self._socket.close()

    def close(self) -> None:
        """Close it without having served it."""
        self._socket.close()

    def waiting_since(self) -> float | None:
        """Return since when it waits for its client, be it to send or to read; None if it works."""
        since = self._sending_since
        if since is not None and time.monotonic() - since > SLOW_READER_SECONDS:
            return since
        return self.idle_since

    def cut(self) -> None:
        """End it now, in the middle of whatever its client keeps it waiting for."""
        self._ended.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def end(self) -> None:
        """Make it end after what it is doing now."""
        self._ended.set()
        with contextlib.suppress(OSError):
            # Of the plain socket below: the answer under way can still be written.
            socket.socket.shutdown(self._socket, socket.SHUT_RD)

    def _secure(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        security = self._service.security()
        if security.context is not None:
            from peerwatch_common.web.tls import (  # noqa: PLC0415 - loaded with TLS only
                handshake,
                under_tls,
            )

            self._socket.settimeout(BRIEF_SECONDS if self._brief else HANDSHAKE_SECONDS)
            # Held before the handshake: else cut() would not reach who never completes it.
            secured = self._socket = under_tls(self._socket, security.context)
            handshake(secured, security.allowed_sans)

    def _serve(self) -> None:
        reader = RequestReader(self._receive, self.client, self._service.max_body_bytes)
        while not self._ended.is_set():
            self._allow(BRIEF_SECONDS if self._brief else IDLE_SECONDS)
            self.idle_since = time.monotonic()
            if not reader.wait():
                return
            head_seconds = BRIEF_SECONDS if self._brief else HEAD_SECONDS
            self._allow(head_seconds)
            try:
                request = reader.read()
            except BadRequestError as error:
                self._refuse(reader, error.status, str(error))
                return
            except TimeoutError:
                sentence = f"The request was not complete after {head_seconds:.0f} s."
                self._refuse(reader, 408, sentence)
                return
            self.idle_since = None
            keep_alive = request.keep_alive and not self._brief and not self._ended.is_set()
            self._answer(reader, request, keep_alive=keep_alive)
            if not keep_alive:
                return
            reader.next()

    def _answer(self, reader: RequestReader, request: Request, *, keep_alive: bool) -> None:
        response = self._service.respond(request)
        if response.parts is not None:
            with contextlib.closing(response.parts):
                self._send_parts(reader, request, response, keep_alive=keep_alive)
            return
        body = response.body
        if len(body) > SMALLEST_BYTES and self._service.gzip is not None:
            headers = (*response.headers, ("Vary", "Accept, Accept-Encoding"))
            if accepts_gzip(request.header("accept-encoding")):
                body = self._service.gzip.compress(body)
                headers = (*headers, ("Content-Encoding", "gzip"))
            response = replace(response, headers=headers)
        self._send(reader, response, bytes(body), keep_alive=keep_alive)

    def _send(
        self, reader: RequestReader, response: Response, body: bytes, *, keep_alive: bool = False
    ) -> None:
        now = self._service.clock()
        head = response.status, response.content_type, response.headers
        if reader.is_repeated and keep_alive and head == self._head:
            answer = repeated_bytes(response, body, now=now)
        else:
            with_body = not reader.is_head
            answer = to_bytes(
                reader.http, response, body, with_body=with_body, keep_alive=keep_alive, now=now
            )
        self._head = head
        self._allow(SEND_SECONDS)
        self._write(answer)

    def _send_parts(
        self, reader: RequestReader, request: Request, response: Response, *, keep_alive: bool
    ) -> None:
        """Send a body part by part; where that fails, the client sees that the end is missing."""
        deflate = None
        headers = (*response.headers, ("Vary", "Accept-Encoding"))
        if self._service.gzip is not None and accepts_gzip(request.header("accept-encoding")):
            headers = (*headers, ("Content-Encoding", "gzip"))
            deflate = zlib.compressobj(1, zlib.DEFLATED, 31)  # as gzip
        response = replace(response, headers=headers)
        http = reader.http
        now = self._service.clock()
        self._allow(PARTS_SECONDS)
        parts = response.parts
        if reader.is_head and parts is not None:
            parts.close()  # before the client, having its answer, asks again
        self._write(head_bytes(http, response, keep_alive=keep_alive, now=now))
        for part in () if reader.is_head or parts is None else parts:
            data = part if deflate is None else deflate.compress(part)
            if data:
                self._write(http.send(h11.Data(data=data)) or b"")
        last = b"" if deflate is None or reader.is_head else deflate.flush()
        end = http.send(h11.Data(data=last)) if last else b""
        self._write((end or b"") + (http.send(h11.EndOfMessage()) or b""))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        self._sending_since = time.monotonic()
        try:
            while left:
                self._socket.settimeout(self._remaining())
                left = left[self._socket.send(left) :]
        finally:
            self._sending_since = None

    def _refuse(self, reader: RequestReader, status: int, sentence: str) -> None:
        served = "GET, HEAD, POST" if self._service.max_body_bytes else "GET, HEAD"
        headers = (("Allow", served),) if status == 405 else ()
        response = text(status, sentence, *headers)
        self._send(reader, response, bytes(response.body))
        # Closing with bytes unread would reset the connection, and the answer be lost.
        socket.socket.shutdown(self._socket, socket.SHUT_WR)
        self._allow(_DRAIN_SECONDS)
        with contextlib.suppress(OSError):
            while self._receive(65536):
                pass

    def _allow(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def _remaining(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client was too slow")
        return left

    def _receive(self, size: int) -> bytes:
        self._socket.settimeout(self._remaining())
        return self._socket.recv(size)
