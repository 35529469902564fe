"""http.client's response, every wait of which ends at one deadline.

The timeout of a socket bounds a single wait, so a server that sends a byte now and then would be
waited for without end. Here each wait is as long as what is left until the deadline, those for the
head and for the length of a chunk included.
"""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Callable
from typing import Any

# Prometheus sends a small chunk per series: a system call brings some 15 of them. What a chunk
# costs with this buffer and without is in docs/benchmarks.md.
_BUFFER_BYTES = 1 << 16


class TimedResponse(http.client.HTTPResponse):
    """A response whose waits are bound.

    Parameters
    ----------
    sock
        Where it comes from.
    remaining_seconds
        Returns the time until the deadline, or raises ``TimeoutError`` if it has passed.
    args, options
        As http.client gives them.
    """

    def __init__(
        self,
        sock: socket.socket,
        *args: Any,  # noqa: ANN401 - handed on
        remaining_seconds: Callable[[], float],
        **options: Any,  # noqa: ANN401 - handed on
    ) -> None:
        super().__init__(sock, *args, **options)
        unbound, self.fp = (
            self.fp,
            io.BufferedReader(_TimedReader(sock, remaining_seconds), _BUFFER_BYTES),
        )
        unbound.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, remaining_seconds: Callable[[], float]) -> None:
        # A file, because it keeps the socket open where its connection is closed before.
        self._file = sock.makefile("rb", buffering=0)
        self._socket, self._remaining_seconds = sock, remaining_seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - as its base has it
        self._socket.settimeout(self._remaining_seconds())
        return self._file.readinto(buffer) or 0

    def readall(self) -> bytes:
        # http.client would read to the end of the connection where a chunk's length is negative.
        raise ValueError("a chunk has no valid length")

    def close(self) -> None:
        self._file.close()
        super().close()
