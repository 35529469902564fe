"""Compresses a body once, however many clients scrape the same snapshot."""

from __future__ import annotations

import struct
import threading
import zlib
from collections import deque

# Below this, headers and packets weigh more than what is saved.
SMALLEST_BYTES = 1024
_BETWEEN_METRICS = b"\n# HELP "
# No file name, no time, compressed fast, by an unknown system.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
# Both empty: of the last block, with which the member ends, and of a piece nobody knows.
_LAST_BLOCK = b"\x03\x00"
_NOTHING = (b"", b"")
_GZIP_END = struct.Struct("<II")
# Both endpoints in both formats have fewer.
_MOST_PIECES = 2000
# Of a metric, by which its piece is found; two without a name would only be compressed anew.
_LONGEST_NAME = 200


class GzipCache:
    """The last few bodies with their compressed bytes.

    The exposition of a snapshot is one object however often it is served, so bodies are compared
    by identity; a few are enough for both endpoints in both formats.

    Parameters
    ----------
    size
        How many bodies are kept.
    """

    def __init__(self, size: int = 4) -> None:
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=size)
        self._pieces: dict[bytes, tuple[bytes, bytes]] = {}
        # Held while compressing: the second scraper of an endpoint waits instead of paying again.
        self._lock = threading.Lock()

    def compress(self, body: bytes) -> bytes:
        """Return the body as gzip, level 1: level 6 costs three times the CPU for a sixth less."""
        with self._lock:
            for known, compressed in self._kept:
                if known is body:
                    return compressed
            compressed = self._packed(body)
            self._kept.append((body, compressed))
            return compressed

    def _packed(self, body: bytes) -> bytes:
        """Return the body as one gzip member, made of a piece for each metric.

        Of most metrics no value changes from one exposition to the next, and comparing a piece
        costs nothing beside compressing it. Every piece is compressed by itself and ends at a whole
        byte, so that pieces can be put together as they are.
        """
        packed = [_GZIP_HEADER]
        if len(self._pieces) > _MOST_PIECES:
            self._pieces.clear()
        start = 0
        while start < len(body):
            name_ends = body.find(b" ", start + len(_BETWEEN_METRICS), start + _LONGEST_NAME)
            name = body[start : max(start, name_ends)]
            piece, compressed = self._pieces.get(name, _NOTHING)
            if not _is_piece(body, start, piece):
                end = body.find(_BETWEEN_METRICS, start + 1)
                piece = body[start:] if end < 0 else body[start:end]
                # -15: a window of 32 KiB, and neither header nor checksum. 5: with zlib's usual
                # memory (8), making it ready takes longer than compressing most pieces.
                deflate = zlib.compressobj(1, zlib.DEFLATED, -15, 5)
                compressed = deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH)
                self._pieces[name] = piece, compressed
            packed.append(compressed)
            start += len(piece)
        packed.append(_LAST_BLOCK)
        packed.append(_GZIP_END.pack(zlib.crc32(body), len(body) & 0xFFFFFFFF))
        return b"".join(packed)


def _is_piece(body: bytes, start: int, piece: bytes) -> bool:
    """Return whether this piece stands there and ends there, without cutting out what does."""
    if not piece or not body.startswith(piece, start):
        return False
    end = start + len(piece)
    return end == len(body) or body.startswith(_BETWEEN_METRICS, end)
