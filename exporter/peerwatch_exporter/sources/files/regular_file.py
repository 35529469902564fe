"""Reads what jobs and scripts write; whatever it is, reading neither waits nor goes on and on."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class NotAFileError(ValueError):
    """There is something else than a regular file: a pipe, a device, a directory."""


class TooLargeError(ValueError):
    """The file is longer than anything that is meant to be there."""


class RegularFile(NamedTuple):
    """What stands in a file, and when it was written (Unix time)."""

    content: bytes
    written: float


def read_regular(path: str, most_bytes: int) -> RegularFile:
    """Return a file's content.

    Raises
    ------
    NotAFileError
        If it is no regular file.
    TooLargeError
        If it has more than ``most_bytes`` bytes.
    OSError
        If it cannot be read.
    """
    status = os.stat(path)  # noqa: PTH116 - hot path: no Path object
    # A pipe without a writer would block, and opening a device may do anything.
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError("is no regular file")
    # It may have become one of them meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise TooLargeError(f"has more than {most_bytes} bytes")
    return RegularFile(content, status.st_mtime)
