"""Compresses a body once, however many clients scrape the same snapshot."""

from __future__ import annotations

import threading
import zlib
from collections import deque

# Below this, headers and packets weigh more than what is saved.
SMALLEST_BYTES = 1024


class GzipCache:
    """The last few bodies with their compressed bytes.

    A page of one snapshot is one object however often it is served, so bodies are compared by
    identity; a few are enough for both pages in both formats.

    Parameters
    ----------
    size
        How many bodies are kept.
    """

    def __init__(self, size: int = 4) -> None:
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=size)
        # Held while compressing: the second scraper of a page waits instead of paying again.
        self._lock = threading.Lock()

    def compress(self, body: bytes) -> bytes:
        """Return the body as gzip, level 1: level 6 costs three times the CPU for a sixth less."""
        with self._lock:
            for known, compressed in self._kept:
                if known is body:
                    return compressed
            # 31: a window of 32 KiB (15), and a gzip header around it (16).
            deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
            compressed = deflate.compress(body) + deflate.flush()
            self._kept.append((body, compressed))
            return compressed
