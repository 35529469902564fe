"""One gRPC call over a Unix socket: a request, an answer, a deadline.

This is all of gRPC that reading the kubelet takes. HTTP/2 itself is the ``h2`` package's, which
is imported at the first call only: nodes outside Kubernetes have no use for it. Every call has a
connection of its own, so there is none to keep alive, to notice dead or to bring back.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from peerwatch_common.installation import install_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from h2.connection import H2Connection
    from h2.events import Event

_CHUNK = 65536  # HTTP/2 begins with a window of one less
# gRPC's frame before a message: whether it is compressed, and its length.
_PREFIX = struct.Struct(">BI")
_STATUS = (
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
)


class GrpcError(Exception):
    """A call failed; ``error_class`` is ``grpc_`` and the status, or what went wrong before one."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


class Unary(Protocol):
    """Calls one method of a server."""

    def call(self, request: bytes) -> bytes:
        """Return the answer to a request, or raise GrpcError."""


class UnaryClient:
    """Calls one method of a server on a Unix socket.

    Parameters
    ----------
    path
        The socket.
    method
        ``/<package>.<service>/<method>``.
    deadline_seconds
        For the whole call.
    max_bytes
        A longer answer is refused.
    monotonic
        Clock of the deadline.
    """

    def __init__(
        self,
        path: Path,
        method: str,
        *,
        deadline_seconds: float,
        max_bytes: int,
        monotonic: Callable[[], float],
    ) -> None:
        self._path = path
        self._method = method
        self._deadline_seconds = deadline_seconds
        self._max_bytes = max_bytes
        self._monotonic = monotonic

    def call(self, request: bytes) -> bytes:
        """Return the answer to a request.

        Raises
        ------
        GrpcError
            If there is none, for whatever reason.
        PermissionError
            If the socket may not be opened.
        """
        exchange = _Exchange(self._max_bytes)
        ends = self._monotonic() + self._deadline_seconds
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._deadline_seconds)
                connection.connect(str(self._path))
                connection.sendall(exchange.open(self._headers(), request))
                while not exchange.ended:
                    left = ends - self._monotonic()
                    if left <= 0:
                        raise TimeoutError
                    connection.settimeout(left)
                    connection.sendall(exchange.take(connection.recv(_CHUNK)))
        except PermissionError:
            raise
        except TimeoutError as error:
            raise GrpcError(
                "grpc_deadline_exceeded", f"{self._path}: no answer in {self._deadline_seconds} s"
            ) from error
        except OSError as error:
            raise GrpcError("grpc_unavailable", f"{self._path}: {error.strerror}") from error
        return exchange.answer()

    def _headers(self) -> list[tuple[str, str]]:
        return [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", self._method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", f"{max(1, round(self._deadline_seconds * 1000))}m"),
        ]


class _Exchange:
    """One request and what came back, without the socket."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._http2 = _new_connection()
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self.ended = False

    def open(self, headers: list[tuple[str, str]], request: bytes) -> bytes:
        """Return the bytes that start the exchange."""
        self._http2.initiate_connection()
        stream = self._http2.get_next_available_stream_id()
        self._http2.send_headers(stream, headers)
        self._http2.send_data(stream, _PREFIX.pack(0, len(request)) + request, end_stream=True)
        return self._http2.data_to_send()

    def take(self, data: bytes) -> bytes:
        """Take in what came and return what has to be sent for it."""
        from h2.exceptions import ProtocolError  # noqa: PLC0415 - optional package

        if not data:
            raise GrpcError("grpc_unavailable", "the server closed the connection")
        try:
            self._handle(self._http2.receive_data(data))
            return self._http2.data_to_send()
        except GrpcError:
            raise
        # Whatever else h2 makes of bytes that are no HTTP/2 is the server's fault as well.
        except (ProtocolError, ValueError, LookupError) as error:
            raise GrpcError("grpc_malformed", f"the answer is no HTTP/2: {error}") from error

    def answer(self) -> bytes:
        """Return the message of an exchange that ended.

        Raises
        ------
        GrpcError
            If the server reported an error or sent no message.
        """
        if self._headers.get(":status") != "200":
            raise GrpcError("grpc_malformed", f"HTTP status {self._headers.get(':status')!r}")
        status = self._headers.get("grpc-status", "")
        if status != "0":
            known = status.isascii() and status.isdigit() and len(status) < 3
            name = _STATUS[int(status)] if known and int(status) < len(_STATUS) else "unknown"
            message = unquote(self._headers.get("grpc-message", ""))[:200]
            raise GrpcError(f"grpc_{name}", f"the server answered {name}: {message}")
        if len(self._body) < _PREFIX.size:
            raise GrpcError("grpc_malformed", f"an answer of {len(self._body)} bytes")
        compressed, length = _PREFIX.unpack_from(self._body)
        if compressed or length != len(self._body) - _PREFIX.size:
            raise GrpcError("grpc_malformed", "the answer is not one uncompressed message")
        return bytes(self._body[_PREFIX.size :])

    def _handle(self, events: Iterable[Event]) -> None:
        from h2 import events as h2  # noqa: PLC0415 - optional package

        for event in events:
            if isinstance(event, h2.ResponseReceived | h2.TrailersReceived):
                self._headers |= _decoded(event.headers)
            elif isinstance(event, h2.DataReceived):
                self._add(event.data)
                self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.StreamEnded):
                self.ended = True
            elif isinstance(event, h2.StreamReset | h2.ConnectionTerminated) and not self.ended:
                raise GrpcError(
                    "grpc_reset", f"the server broke off: HTTP/2 error {event.error_code}"
                )

    def _add(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._max_bytes + _PREFIX.size:
            raise GrpcError("grpc_too_large", f"the answer has more than {self._max_bytes} bytes")


def _new_connection() -> H2Connection:
    try:
        from h2.config import H2Configuration  # noqa: PLC0415 - optional package
        from h2.connection import H2Connection  # noqa: PLC0415 - optional package
    except ImportError as error:
        raise GrpcError(
            "package_missing",
            "the package h2 is not installed; set jobs.pod_resources_socket to null, or: "
            + install_advice("kubernetes"),
        ) from error
    return H2Connection(H2Configuration(client_side=True, header_encoding=None))


def _decoded(headers: Iterable[tuple[bytes | str, bytes | str]]) -> Mapping[str, str]:
    def text(value: bytes | str) -> str:
        return value if isinstance(value, str) else value.decode(errors="replace")

    return {text(name): text(value) for name, value in headers}
