"""Reads a file of procfs to its end, with nothing but the system calls it takes.

Python's own files ask several things more at every opening, and a path object is made for each:
together that takes three times as long as the reading, for a dozen files every second.
"""

from __future__ import annotations

import os

# Most of them are shorter; a list gives some 4 KiB at a time, whatever it is asked for.
_READ_BYTES = 16384


def read_whole(path: str) -> bytes:
    """Return a file's content.

    Raises
    ------
    OSError
        If it cannot be opened or read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _READ_BYTES):
            parts.append(part)
    finally:
        os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts)
