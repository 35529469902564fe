"""What a compiled decoder says when it stops, and the error that each means."""

from __future__ import annotations

from typing import Final

from peerwatch_detector.errors import ReadError, ReadFailure


class UnsplittableError(ReadError):
    """A ``ReadError`` that a smaller request would meet as well."""


# Our own numbers, from 1: a compiled function returns no object.
FINISHED: Final = 1
MORE_BYTES: Final = 2
MORE_ROOM: Final = 3
BAD_CHECKSUM: Final = 4
BAD_FRAME: Final = 5
BAD_CHUNK: Final = 6
HISTOGRAM: Final = 7
TOO_LONG: Final = 8
BAD_TEXT: Final = 9
OTHER_CHUNK: Final = 10

_MEANINGS: dict[int, tuple[ReadFailure, str]] = {
    BAD_CHECKSUM: ("malformed", "a frame whose checksum is wrong"),
    BAD_FRAME: ("malformed", "a frame that is no ChunkedReadResponse"),
    BAD_CHUNK: ("malformed", "a chunk whose samples contradict its count or its times"),
    HISTOGRAM: (
        "refused",
        "a native histogram, which has no single value; select series of floats, for example by "
        "a recording rule",
    ),
    TOO_LONG: ("malformed", "a frame longer than any server sends"),
    OTHER_CHUNK: (
        "malformed",
        "a chunk in an encoding that is not read, as Prometheus does where chunk_encoding.floats "
        "is 'xor2'; set prometheus.reading.api to 'auto' or 'query'",
    ),
    BAD_TEXT: ("malformed", "text that is no series of samples"),
}


def error_of(status: int, url: str, place: int, near: bytes) -> ReadError:
    """Return the error that a decoder's status means.

    Parameters
    ----------
    status
        One of the constants above.
    url
        Who sent it.
    place
        Bytes of the response before it.
    near
        The bytes there; some are shown.
    """
    reason, text = _MEANINGS[status]
    kind = UnsplittableError if status == HISTOGRAM else ReadError
    return kind(reason, f"{url} sent {text}, after {place} bytes: {near[:60]!r}.")
