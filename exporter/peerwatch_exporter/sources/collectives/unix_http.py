"""One request to an HTTP server on a unix socket, with limits to what the answer may cost.

The server runs inside a training process: it may stand still, be gone, or be something else.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError

if TYPE_CHECKING:
    from pathlib import Path

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?")
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,18})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding:", re.IGNORECASE | re.MULTILINE)
# Some hundred bytes; this is the limit of h11, too.
_LARGEST_HEAD_BYTES = 16384
_READ_BYTES = 1 << 18


class NotFoundError(Exception):
    """The server has nothing under that name."""


def ask(
    path: Path, method: str, target: str, *, timeout_seconds: float, most_bytes: int
) -> bytearray:
    """Return the body of the answer.

    Parameters
    ----------
    path
        The socket.
    method, target
        Such as ``POST`` and ``/handler/ping``.
    timeout_seconds
        For everything together, however often a few bytes come.
    most_bytes
        The longest body that is read.

    Raises
    ------
    NotFoundError
        If the server answers 404.
    CollectiveSourceError
        If it does not answer, or not as it should.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise CollectiveSourceError("recorder_no_socket", f"{path} is no socket; remove it")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(os.fspath(path))
            connection.sendall(
                f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            return _read_answer(connection, path, deadline, most_bytes)
    except PermissionError as error:
        raise CollectiveSourceError("permission_denied", _refused(path)) from error
    except (FileNotFoundError, ConnectionError) as error:
        raise CollectiveSourceError(
            "recorder_gone", f"{path}: {error.strerror}; the rank ended without removing its socket"
        ) from error
    except (TimeoutError, BlockingIOError) as error:
        # Also a queue full of connections that nobody accepts.
        raise CollectiveSourceError(
            "recorder_no_answer",
            f"{path} has not answered in {timeout_seconds:g} s; the process may be stopped",
        ) from error
    except OSError as error:
        raise CollectiveSourceError("recorder_unreachable", f"{path}: {error}") from error


def _read_answer(
    connection: socket.socket, path: Path, deadline: float, most_bytes: int
) -> bytearray:
    received = bytearray()
    end = -1
    while end < 0:
        if len(received) > _LARGEST_HEAD_BYTES or not _receive(connection, received, deadline):
            raise _garbled(path, received)
        end = received.find(b"\r\n\r\n")
    head, body = received[:end], received[end + 4 :]
    status = _STATUS.match(head)
    if status is None or _CHUNKED.search(head) is not None:
        raise _garbled(path, head)
    if status[1] == b"404":
        raise NotFoundError
    if status[1] != b"200":
        raise CollectiveSourceError(
            "recorder_refused", f"{path} answered with status {status[1].decode()}"
        )
    length = _LENGTH.search(head)
    expected = None if length is None else int(length[1])
    if expected is not None and expected > most_bytes:
        raise _too_large(path, most_bytes)
    while expected is None or len(body) < expected:
        if len(body) > most_bytes:
            raise _too_large(path, most_bytes)
        if not _receive(connection, body, deadline):
            break
    if expected is not None and len(body) < expected:
        raise CollectiveSourceError(
            "recorder_garbled", f"{path} ended its answer after {len(body)} of {expected} bytes"
        )
    return body


def _receive(connection: socket.socket, into: bytearray, deadline: float) -> bool:
    """Append what has arrived; return False at the end."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)
    part = connection.recv(_READ_BYTES)
    into += part
    return bool(part)


def _garbled(path: Path, answer: bytes | bytearray) -> CollectiveSourceError:
    return CollectiveSourceError(
        "recorder_garbled",
        f"{path} does not answer as an HTTP server does: {bytes(answer[:60])!r}",
    )


def _too_large(path: Path, most_bytes: int) -> CollectiveSourceError:
    return CollectiveSourceError(
        "recorder_too_large",
        f"{path} answers with more than {most_bytes} bytes; set TORCH_FR_BUFFER_SIZE lower, for "
        "example 512",
    )


def _refused(path: Path) -> str:
    try:
        owner = str(os.lstat(path).st_uid)
    except OSError:
        owner = "another user"
    return (
        f"{path} belongs to user {owner}, the exporter runs as {os.geteuid()}; give the directory "
        "to a group of the exporter with the set-group-ID bit (chmod g+s), or run the exporter as "
        "that user, or with CAP_DAC_OVERRIDE"
    )
