"""Reads the beginning and the end of a log, however long it is.

What a job failed of stands at its end, what it was started as at its beginning. A file is read at
both; of what cannot be sought, such as a pipe, all is read and the middle forgotten.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import BinaryIO

# Chosen: small beside the 14 MiB of a tail, which it may exceed by so much while it is read.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """How much of one log is kept.

    Parameters
    ----------
    head_bytes, tail_bytes
        At its beginning, and at its end.
    """

    head_bytes: int = 2 << 20
    tail_bytes: int = 14 << 20

    def shared(self, logs: int, total_bytes: int) -> Bound:
        """Return the bound for each of so many logs, of which ``total_bytes`` are kept in all."""
        each = max(_LEAST_BYTES, total_bytes // max(1, logs))
        if each >= self.head_bytes + self.tail_bytes:
            return self
        return Bound(each // 8, each - each // 8)


# One file has 16 MiB, all of a job 128 MiB, which take 7 s of a processor (0.05 s a MB by
# docs/retry.md); of 10,000 ranks each has 64 KiB, in which unknown.py looks for a failure.
LARGEST = Bound()
TOTAL_BYTES = 128 << 20
_LEAST_BYTES = 64 << 10


def read_ends(file: BinaryIO, size: int, bound: Bound) -> tuple[bytes, bytes, int]:
    """Return beginning and end of a file, and how many bytes between them were left out.

    Parameters
    ----------
    file
        Open for reading, at its beginning.
    size
        Its length in bytes; it may grow while it is read.
    bound
        How much is kept.
    """
    if size <= bound.head_bytes + bound.tail_bytes:
        return file.read(bound.head_bytes + bound.tail_bytes), b"", 0
    head = file.read(bound.head_bytes)
    start = size - bound.tail_bytes
    file.seek(start)
    # It begins with a part of a line.
    return head, file.read(bound.tail_bytes), start - len(head)


def read_stream(stream: BinaryIO, bound: Bound) -> tuple[bytes, bytes, int]:
    """Return the same of what can be read only once, in a memory of the bound's size."""
    head = bytearray()
    tail: deque[bytes] = deque()
    kept = total = 0
    while chunk := stream.read(_CHUNK_BYTES):
        total += len(chunk)
        missing = bound.head_bytes - len(head)
        if missing > 0:
            head += chunk[:missing]
            chunk = chunk[missing:]
        if not chunk:
            continue
        tail.append(chunk)
        kept += len(chunk)
        while kept - len(tail[0]) >= bound.tail_bytes:
            kept -= len(tail.popleft())
    end = b"".join(tail)[-bound.tail_bytes :] if tail else b""
    skipped = total - len(head) - len(end)
    if not skipped:
        return bytes(head) + end, b"", 0
    return bytes(head), end, skipped
