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
_NOTHING = (None, b"")
_GZIP_END = struct.Struct("<II")
# Both endpoints in both formats have fewer.
_MOST_PIECES = 2000
# Of a metric, by which it is found; two with the same beginning would only be compressed anew.
_LONGEST_NAME = 100


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
        self._pieces: dict[tuple[bool, bytes], tuple[bytes, bytes]] = {}
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
        for piece in body.split(_BETWEEN_METRICS):
            is_first = len(packed) == 1
            key = is_first, piece[:_LONGEST_NAME]
            known, compressed = self._pieces.get(key, _NOTHING)
            if known != piece:
                # -15: a window of 32 KiB, and neither header nor checksum. 5: with zlib's usual
                # memory (8), making it ready takes longer than compressing most pieces.
                deflate = zlib.compressobj(1, zlib.DEFLATED, -15, 5)
                text = piece if is_first else _BETWEEN_METRICS + piece
                compressed = deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)
                self._pieces[key] = piece, compressed
            packed.append(compressed)
        packed.append(_LAST_BLOCK)
        packed.append(_GZIP_END.pack(zlib.crc32(body), len(body) & 0xFFFFFFFF))
        return b"".join(packed)
