"""One request to NCCL's RAS service: a line-oriented protocol over TCP, since NCCL 2.24.

The JSON format came with 2.28.7; an older service refuses it and answers with text. The port may be
anybody's, and whoever listens may say anything, slowly and without an end.
"""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError

# A communicator of 1,024 ranks is 400 KB of JSON: room for 40 of them.
LARGEST_ANSWER_BYTES = 16 * 2**20
# Lines of the protocol have some dozen characters; 2 is the version of it that NCCL 2.24 speaks.
_LONGEST_LINE_BYTES = 4096
_READ_BYTES = 1 << 18
_PROTOCOL = 2


class RasAnswer(NamedTuple):
    """The body, and whether it is JSON."""

    body: bytes
    is_json: bool


def ask_ras(host: str, port: int, timeout_seconds: float) -> RasAnswer:
    """Return the service's verbose status.

    Parameters
    ----------
    host, port
        Where it listens: ``localhost:28028`` unless NCCL_RAS_ADDR says otherwise.
    timeout_seconds
        For everything together. The service itself collects for all but a second of it.

    Raises
    ------
    CollectiveSourceError
        If nobody listens, or it is not RAS, or the answer has no end.
    """
    deadline = time.monotonic() + timeout_seconds
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection:
            return _converse(_Lines(connection, deadline, where), timeout_seconds, where)
    except TimeoutError as error:
        raise CollectiveSourceError(
            "ras_no_answer", f"{where} has not answered within {timeout_seconds:g} s"
        ) from error
    except ConnectionRefusedError as error:
        raise CollectiveSourceError(
            "ras_refused",
            f"nobody listens at {where}: no NCCL job of 2.24 or later, or NCCL_RAS_ADDR differs",
        ) from error
    except OSError as error:
        raise CollectiveSourceError("ras_unreachable", f"{where}: {error}") from error


class _Lines:
    """A connection read line by line, then to its end, before a deadline."""

    def __init__(self, connection: socket.socket, deadline: float, where: str) -> None:
        self._connection = connection
        self._deadline = deadline
        self._where = where
        self._buffer = bytearray()

    def send(self, line: str) -> None:
        self._connection.sendall(f"{line}\n".encode())

    def line(self) -> str:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LONGEST_LINE_BYTES or not self._receive():
                raise _foreign(self._where, self._buffer)
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        return line.decode(errors="replace").strip()

    def rest(self) -> bytes:
        while self._receive():
            if len(self._buffer) > LARGEST_ANSWER_BYTES:
                raise CollectiveSourceError(
                    "ras_too_large",
                    f"{self._where} answers with more than {LARGEST_ANSWER_BYTES} bytes",
                )
        return bytes(self._buffer)

    def _receive(self) -> bool:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        part = self._connection.recv(_READ_BYTES)
        self._buffer += part
        return bool(part)


def _converse(lines: _Lines, timeout_seconds: float, where: str) -> RasAnswer:
    lines.send(f"CLIENT PROTOCOL {_PROTOCOL}")
    greeting = lines.line()
    if not greeting.startswith("SERVER PROTOCOL "):
        raise _foreign(where, greeting.encode())
    lines.send(f"TIMEOUT {max(1, int(timeout_seconds) - 1)}")
    lines.line()
    lines.send("SET FORMAT json")
    is_json = lines.line().upper().startswith("OK")
    lines.send("VERBOSE STATUS")
    return RasAnswer(lines.rest(), is_json)


def _foreign(where: str, answer: bytes | bytearray) -> CollectiveSourceError:
    return CollectiveSourceError(
        "ras_foreign", f"{where} is no RAS service, it answers {bytes(answer[:60])!r}"
    )
