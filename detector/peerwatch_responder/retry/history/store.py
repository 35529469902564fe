"""The file of the history: JSON lines, which many processes add to and none changes.

Advice is no action: a damaged line is left out and said, and a file that cannot be written costs
the memory of this advice, not the advice.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.retry.history.row import HistoryRow, parse_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Chosen: the newest rows of some 30,000 failed jobs, 2 KiB each; what is older is not read.
MAX_BYTES = 64 << 20


class HistoryError(PeerwatchError):
    """The history cannot be read or written; the message says why and what to do."""


class History:
    """The rows of one file.

    Parameters
    ----------
    path
        The file; made with the first row, in a folder that exists.

    Attributes
    ----------
    damaged
        How many lines of it could not be read the last time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged = 0

    def rows(self) -> list[HistoryRow]:
        """Return its rows, oldest first; there are none where there is no file.

        Raises
        ------
        HistoryError
            If it cannot be read.
        """
        self.damaged = 0
        found = []
        for line in self._lines():
            row = parse_row(line)
            if row is None:
                self.damaged += 1
            else:
                found.append(row)
        return found

    def append(self, row: HistoryRow) -> None:
        """Write a row to the disk.

        Raises
        ------
        HistoryError
            If it cannot be written.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                size = os.fstat(file).st_size
                # A row that another did not write to its end must not take this one with it.
                torn = size and os.pread(file, 1, size - 1) != b"\n"
                line = (b"\n" if torn else b"") + row.line()
                if os.write(file, line) != len(line):
                    raise OSError(None, "was not written to its end")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise HistoryError(self._cannot("written", error)) from error

    def _lines(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise HistoryError(f"{self._path}: is no file")
                if status.st_size > MAX_BYTES:
                    file.seek(status.st_size - MAX_BYTES)
                    file.readline()
                # A last line without its end is being written, or never was.
                yield from (line for line in file if line.endswith(b"\n") and line.strip())
        except FileNotFoundError:
            return
        except OSError as error:
            raise HistoryError(self._cannot("read", error)) from error

    def _cannot(self, what: str, error: OSError) -> str:
        return f"{self._path}: cannot be {what}: {error.strerror}; --history names another file"
