"""What the process that reads logs and its parent agree on.

It stands apart for the parent's sake: what matches logs needs 13 MB that the parent does without.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

MARK_BYTES = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the process is told at its start.

    Parameters
    ----------
    procfs, kmsg
        The node's /proc, and its kernel log; None: that is not read.
    processes, pods_directory, paths
        Where to look for logs.
    signatures
        The user's files of signatures.
    first_error, tail_bytes, max_bytes_per_second, max_files
        The settings.
    started
        When the exporter started (Unix time).
    """

    procfs: str
    kmsg: str | None
    processes: bool
    pods_directory: str | None
    paths: list[str]
    signatures: list[str]
    first_error: bool
    tail_bytes: int
    max_bytes_per_second: int
    max_files: int
    started: float


def own_memory(size: int = MARK_BYTES) -> int:
    """Return the descriptor of new memory for what is touched."""
    memory = os.memfd_create("peerwatch-logs", os.MFD_CLOEXEC)
    os.ftruncate(memory, size)
    return memory
