"""The body of a response as it comes from the socket: chunks joined, within time and length."""

from __future__ import annotations

import http.client
import socket
import time
import zlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.decode.chunks import BROKEN, DONE, SIZE, join_chunks
from peerwatch_detector.reading.decode.prepare import prepare
from peerwatch_detector.reading.settings import ReadingSettings

Bytes = NDArray[np.uint8]

_PIECE = 1 << 18
# As objects, JSON takes many times as much memory; this is some 250,000 series of one sample.
_LONGEST_TEXT = 1 << 26


class Body:
    """Reads a body piece by piece; at its end the connection is free for the next request.

    Parameters
    ----------
    response
        Whose head has been read.
    sock
        Its socket.
    url
        For messages.
    deadline
        On the clock of ``time.monotonic``.
    settings
        The limits.
    give_up
        Called when the rest will not be read, so that the connection is not used again.
    """

    def __init__(
        self,
        response: http.client.HTTPResponse,
        sock: socket.socket,
        url: str,
        deadline: float,
        settings: ReadingSettings,
        give_up: Callable[[], None],
    ) -> None:
        self._response, self._sock, self.url = response, sock, url
        self._deadline, self._settings, self._give_up = deadline, settings, give_up
        self._raw = np.empty(_PIECE, np.uint8)
        self._packed = bytearray(0)
        self._state = np.array([SIZE, -1])
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        self._inflate = None if coding in {"", "identity"} else zlib.decompressobj(47)
        if coding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            give_up()
            raise ReadError(
                "malformed", f"{url} answers in Content-Encoding {coding!r} unasked; turn it off."
            )
        if self._inflate is not None:
            self._packed = bytearray(_PIECE)
        self._head_is_left = True
        self.read_bytes = 0
        self.finished = False

    def read_into(self, room: memoryview) -> int:
        """Put what comes next into ``room``; 0 at the end.

        Raises
        ------
        ReadError
            If the body breaks off, comes too slowly, or is too long.
        """
        try:
            count = self._inflated(room) if self._inflate else self._plain(room)
        except TimeoutError as error:
            self._give_up()
            limit = self._settings.timeout_seconds
            raise ReadError(
                "timeout",
                f"{self.url} was not done after {limit:g} s and {self.read_bytes} bytes; raise "
                "prometheus.timeout_seconds or look at the server's load.",
            ) from error
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            self._give_up()
            raise ReadError(
                "truncated",
                f"{self.url} broke off in mid-response after {self.read_bytes} bytes: {error}.",
            ) from error
        self.read_bytes += count
        if self.read_bytes > self._settings.max_response_bytes:
            self._give_up()
            raise ReadError(
                "too_large",
                f"{self.url} sends more than {self._settings.max_response_bytes} bytes in one "
                "response; narrow the selection or raise "
                "prometheus.reading.max_response_bytes.",
            )
        return count

    def release(self) -> None:
        """Let go of the socket."""
        self._response.close()

    def close(self) -> None:
        """Say that no more will be read."""
        if not self.finished:
            self._give_up()

    def _inflated(self, room: memoryview) -> int:
        """Read and undo the compression that was not asked for."""
        assert self._inflate is not None
        while not self._inflate.eof:
            raw = self._inflate.unconsumed_tail
            if not raw:
                count = self._plain(memoryview(self._packed))
                if not count:
                    raise ValueError("the compressed text has no end")
                raw = bytes(self._packed[:count])
            if text := self._inflate.decompress(raw, len(room)):
                room[: len(text)] = text
                return len(text)
        while self._plain(memoryview(self._packed)):
            pass
        return 0

    def _plain(self, room: memoryview) -> int:
        """Read without undoing compression."""
        if self.finished:
            return 0
        if self._response.chunked:
            return self._chunked(room) if prepare() else self._joined_slowly(room)
        announced = self._response.length
        if announced == 0:
            return self._end()
        view = room if announced is None else room[:announced]
        count = self._receive(view)
        if count == 0:
            if announced:
                raise ValueError(f"{announced} bytes are missing")
            return self._end()
        if announced is not None:
            self._response.length = announced - count
        return count

    def _chunked(self, room: memoryview) -> int:
        target = np.frombuffer(room, np.uint8)
        raw = self._raw[: min(len(target), _PIECE)]
        while True:
            count = self._receive(raw.data)
            if count == 0:
                raise ValueError("the last chunk is missing")
            found = join_chunks(raw, count, target, self._state)
            if self._state[0] == BROKEN:
                raise ValueError("a chunk has no valid length")
            if self._state[0] == DONE:
                self._end()
                return found
            if found:
                return found

    def _joined_slowly(self, room: memoryview) -> int:
        """Join chunks without compiled code."""
        self._await()
        data = self._response.read1(len(room))
        room[: len(data)] = data
        return len(data) or self._end()

    def _await(self) -> None:
        """Bind what is received next to the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)

    def _receive(self, room: memoryview) -> int:
        self._await()
        # The buffered file that http.client made of the socket to read the head: what is left in it
        # comes first. Afterwards its buffer, which would wait to be full, is passed by.
        file = self._response.fp
        if not self._head_is_left:
            return file.raw.readinto(room) or 0
        data = file.read1(len(room))
        room[: len(data)] = data
        self._head_is_left = len(data) == len(room)
        return len(data)

    def _end(self) -> int:
        self.finished = True
        self._response.close()
        if self._response.will_close:
            self._give_up()
        return 0


def read_all(body: Body) -> bytes:
    """Return a whole body that becomes Python objects.

    Raises
    ------
    ReadError
        If it breaks off, comes too slowly, or is too long.
    """
    text, room = bytearray(), memoryview(bytearray(_PIECE))
    while count := body.read_into(room):
        text += room[:count]
        if len(text) > _LONGEST_TEXT:
            body.close()
            raise ReadError(
                "too_large",
                f"{body.url} sends more than {_LONGEST_TEXT} bytes of JSON in one response; is "
                "prometheus.url the query API?",
            )
    return bytes(text)


def is_broken(error: BaseException) -> bool:
    """Tell whether a connection was there and broke, rather than never came about."""
    return isinstance(error, http.client.IncompleteRead | http.client.LineTooLong)
