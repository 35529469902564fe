"""Reading the files of a process."""

from __future__ import annotations

import os

# Most of them are shorter; environments may be longer.
_READ_BYTES = 4096


def read_file(path: str) -> bytes:
    """Return a file's content; a short read is its end, as it is with every file of a process."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _READ_BYTES)
        if len(content) < _READ_BYTES:
            return content
        parts = [content]
        while content:
            content = os.read(descriptor, 16 * _READ_BYTES)
            parts.append(content)
        return b"".join(parts)
    finally:
        os.close(descriptor)
