"""Whether the files of a directory are as they were, by what ``stat`` says of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

# File systems write times in steps of some milliseconds, old ones of one or two seconds (FAT). A
# file may have been written again within the step in which it was read, with the same size.
_STEP_SECONDS = 2.5


class Fingerprint(NamedTuple):
    """It changes when a file is written, replaced or made readable."""

    inode: int
    size: int
    written_ns: int
    changed_ns: int

    def is_stable(self, now: float, step_seconds: float = _STEP_SECONDS) -> bool:
        """Return whether a file read at a Unix time cannot change without a new fingerprint."""
        return now - self.changed_ns / 1e9 > step_seconds


def file_fingerprints(directory: Path) -> dict[str, Fingerprint | None]:
    """Return the fingerprint of each file, by name; None of a file that is gone or unreadable.

    Raises
    ------
    OSError
        If the directory cannot be read.
    """
    fingerprints: dict[str, Fingerprint | None] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                fingerprints[entry.name] = None
                continue
            fingerprints[entry.name] = Fingerprint(
                status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            )
    return fingerprints
