"""The body of a response as it comes: within time and length, compression undone."""

from __future__ import annotations

import http.client
import zlib
from collections.abc import Callable

from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading.settings import ReadingSettings

# Decoding begins when this much is there; of remote read that is some 60 series of 15 minutes.
# Chosen: enough for one call of a compiled decoder, little of a large job's answer.
_READ_BYTES = 1 << 18
# As objects, JSON takes many times as much memory; this is some 250,000 series of one sample.
_MAX_TEXT_BYTES = 1 << 26


class Body:
    """Reads a body bit by bit; at its end the connection is free for the next request.

    Parameters
    ----------
    response
        Whose head has been read.
    url
        For messages.
    settings
        The limits.
    give_up
        Called when the rest will not be read, so that the connection is not used again.

    Raises
    ------
    ReadError
        If it comes in a coding that is not known.
    """

    def __init__(
        self,
        response: http.client.HTTPResponse,
        url: str,
        settings: ReadingSettings,
        give_up: Callable[[], None],
    ) -> None:
        self._response, self.url = response, url
        self._settings, self._give_up = settings, give_up
        self.read_bytes = 0
        self.finished = False
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            self.close()
            raise ReadError(
                "malformed", f"{url} answers in Content-Encoding {coding!r} unasked; turn it off."
            )
        self._inflate = None if coding in {"", "identity"} else zlib.decompressobj(47)

    def read_into(self, buffer: memoryview) -> int:
        """Put what comes next into ``buffer``; 0 at the end.

        Raises
        ------
        ReadError
            If the body breaks off, comes too slowly, or is too long.
        """
        try:
            data = self._inflated(len(buffer)) if self._inflate else self._received(len(buffer))
        except TimeoutError as error:
            self.close()
            limit = self._settings.timeout_seconds
            raise ReadError(
                "timeout",
                f"{self.url} was not done after {limit:g} s and {self.read_bytes} bytes; "
                + self._settings.after_timeout,
            ) from error
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            self.close()
            origin = error.__cause__ or error
            bad_length = isinstance(origin.__context__, ValueError)
            text = "a chunk has no valid length" if bad_length else str(error)
            raise ReadError(
                "truncated",
                f"{self.url} broke off in mid-response after {self.read_bytes} bytes: {text}.",
            ) from error
        self.read_bytes += len(data)
        if self.read_bytes > self._settings.max_response_bytes:
            self.close()
            raise ReadError(
                "too_large",
                f"{self.url} sends more than {self._settings.max_response_bytes} bytes in one "
                "response; narrow the selection or raise "
                "prometheus.reading.max_response_bytes.",
            )
        buffer[: len(data)] = data
        return len(data)

    def release(self) -> None:
        """Let go of the socket."""
        self._response.close()

    def close(self) -> None:
        """Say that no more will be read."""
        if not self.finished:
            self._give_up()

    def _received(self, length: int) -> bytes:
        """Read without undoing compression."""
        if self.finished:
            return b""
        data = self._response.read(min(length, _READ_BYTES))
        if not data:
            if self._response.length:
                raise ValueError(f"{self._response.length} bytes are missing")
            self.finished = True
            self._response.close()
            if self._response.will_close:
                self._give_up()
        return data

    def _inflated(self, length: int) -> bytes:
        """Read and undo the compression that was not asked for."""
        assert self._inflate is not None
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._received(length)
            if not packed:
                raise ValueError("the compressed text has no end")
            if text := self._inflate.decompress(packed, length):
                return text
        while self._received(length):
            pass
        return b""


def read_all(body: Body) -> bytes:
    """Return a whole body that becomes Python objects.

    Raises
    ------
    ReadError
        If it breaks off, comes too slowly, or is too long.
    """
    text, buffer = bytearray(), memoryview(bytearray(_READ_BYTES))
    while count := body.read_into(buffer):
        text += buffer[:count]
        if len(text) > _MAX_TEXT_BYTES:
            body.close()
            raise ReadError(
                "too_large",
                f"{body.url} sends more than {_MAX_TEXT_BYTES} bytes of JSON in one response; is "
                "prometheus.url the query API?",
            )
    return bytes(text)
