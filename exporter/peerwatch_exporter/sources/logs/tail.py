"""One log file that is followed: what was appended, through rotation, truncation and floods."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

# Bytes before the offset that must still be there: a file cut to nothing and written beyond the old
# offset has others. Chosen: longer than what all lines of a log begin with.
_OVERLAP_BYTES = 64
# At once: other files and reports have their turn in between.
READ_BYTES = 262_144
# Where a file continues that grew faster than it may be read: this far before its end.
_RESUME_BYTES = 1_048_576

FileKey = tuple[int, int]


class NotRegularError(OSError):
    """What is opened is no regular file, or no longer the file that was found."""


class Position(NamedTuple):
    """How far a file was read, and the bytes before; enough to go on in another process."""

    offset: int
    overlap: bytes


class Piece(NamedTuple):
    """What one read gave.

    Parameters
    ----------
    data
        The new bytes.
    skipped
        Bytes that were left out before them.
    restarted
        Whether the file was cut, so that what came before is no beginning of ``data``.
    pending
        Bytes of the file that are still unread.
    """

    data: bytes
    skipped: int = 0
    restarted: bool = False
    pending: int = 0


class Tail:
    """Reads what is appended to an open file; never seeks a shared offset.

    Parameters
    ----------
    path
        What to open; a link of ``/proc/<pid>/fd`` also opens a file without a name.
    key
        Device and inode of the file that is meant.
    position
        Where to begin.

    Raises
    ------
    NotRegularError
        If something else stands there by now.
    OSError
        If it cannot be opened.
    """

    def __init__(self, path: str, key: FileKey, position: Position) -> None:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        self.key = key
        self._descriptor = os.open(path, flags)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) != key:
            self.close()
            raise NotRegularError(f"{path} is another file by now")
        self._changed = 0
        self._offset = position.offset
        self._overlap = position.overlap

    @property
    def position(self) -> Position:
        """How far it was read."""
        return Position(self._offset, self._overlap)

    def read(self, most_bytes: int, most_pending: int) -> Piece | None:
        """Return what was appended, None if that is nothing.

        Parameters
        ----------
        most_bytes
            How much to return at most.
        most_pending
            A file with more unread bytes than this continues near its end.
        """
        status = os.fstat(self._descriptor)
        size, changed = status.st_size, status.st_mtime_ns
        restarted = size < self._offset
        if size == self._offset and changed == self._changed:
            return None
        self._changed = changed
        if not restarted:
            restarted = not self._overlaps()
        if restarted:
            self._offset, self._overlap = 0, b""
        skipped = 0
        if size - self._offset > most_pending:
            skipped = max(0, size - _RESUME_BYTES - self._offset)
            self._offset += skipped
        # Of what is asked for memory is made, even if less comes.
        wanted = min(most_bytes, size - self._offset)
        data = os.pread(self._descriptor, wanted, self._offset)
        if not data and not skipped and not restarted:
            # Written again with what it had, or with a size that it does not have, as in sysfs.
            return None
        self._offset += len(data)
        before = b"" if skipped else self._overlap
        self._overlap = (before + data)[-_OVERLAP_BYTES:]
        return Piece(data, skipped, restarted, max(0, size - self._offset))

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _overlaps(self) -> bool:
        length = len(self._overlap)
        if not length:
            return True
        return os.pread(self._descriptor, length, self._offset - length) == self._overlap


def end_of(size: int, tail_bytes: int) -> Position:
    """Return where to begin in a file of which only the end is wanted."""
    return Position(max(0, size - tail_bytes), b"")
