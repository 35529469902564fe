"""Compresses a body once, however many clients scrape the same snapshot."""

from __future__ import annotations

import struct
import threading
import zlib
from collections import deque
from typing import TYPE_CHECKING

from peerwatch_common.web.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

# Chosen: what fits into one packet (1,500 bytes) takes one packet however well it is compressed.
SMALLEST_BYTES = 1024
# Level 6 costs three times the CPU for a sixth less.
_LEVEL = 1
# A window of 32 KiB, and neither header nor checksum; with zlib's usual memory (8) forgetting what
# was compressed before takes longer than compressing most pieces.
_WINDOW, _MEMORY = -15, 5
# zlib's number for its largest window (15) in a member of gzip (16).
_AS_GZIP = 31
# No file name, no time, compressed fast, by an unknown system.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
# Of the last block, with which the member ends: it is empty.
_LAST_BLOCK = b"\x03\x00"
_GZIP_END = struct.Struct("<II")
# Both endpoints in both formats have fewer.
_MOST_PIECES = 2000
# By these first bytes, which hold a metric's name, a piece is found; two that share them would only
# be compressed anew.
_NAME_BYTES = 100
_NOTHING = (b"", b"")


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
        self._kept: deque[tuple[bytes | Pieces, bytes]] = deque(maxlen=size)
        self._pieces: dict[bytes, tuple[bytes, bytes]] = {}
        # One for all pieces: making it takes as long as compressing most of them.
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
        # Held while compressing: the second scraper of an endpoint waits instead of paying again.
        self._lock = threading.Lock()

    def compress(self, body: bytes | Pieces) -> bytes:
        """Return the body as gzip."""
        with self._lock:
            for known, compressed in self._kept:
                if known is body:
                    return compressed
            if isinstance(body, Pieces):
                compressed = self._joined(body.pieces)
            else:
                compressed = zlib.compress(body, _LEVEL, _AS_GZIP)
            self._kept.append((body, compressed))
            return compressed

    def _joined(self, pieces: Sequence[bytes]) -> bytes:
        """Return one gzip member.

        Of most metrics no value changes from one exposition to the next. Every piece is compressed
        by itself and ends at a whole byte, so that pieces can be put together as they are.
        """
        packed = [_GZIP_HEADER]
        if len(self._pieces) > _MOST_PIECES:
            self._pieces.clear()
        checksum = length = 0
        for piece in pieces:
            name = piece[:_NAME_BYTES]
            before, compressed = self._pieces.get(name, _NOTHING)
            if before is not piece and before != piece:
                # What follows does not refer to what came before it.
                compressed = self._deflate.compress(piece) + self._deflate.flush(zlib.Z_FULL_FLUSH)
                self._pieces[name] = piece, compressed
            packed.append(compressed)
            checksum = zlib.crc32(piece, checksum)
            length += len(piece)
        packed.append(_LAST_BLOCK)
        packed.append(_GZIP_END.pack(checksum, length & 0xFFFFFFFF))
        return b"".join(packed)
