"""The journal: a file of rows, each on the disk before what it speaks of is done.

After a crash it says what may have been done. A row that was not written to its end is dropped:
nothing was done after it. Any other damage stops the responder, for what cannot be read may be
what was done.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from typing import TYPE_CHECKING, Any

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.audit.row import Row, RowError, parse_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from peerwatch_responder.audit.row import Kind

_LOG = logging.getLogger(__name__)

# Chosen: a response has some ten rows of 300 bytes; this is ten years of one every hour.
MAX_BYTES = 256 * 1024**2


class JournalError(PeerwatchError):
    """The journal cannot be used; the message says why and what to do."""


class Journal:
    """The open journal; no other process can have it open as well.

    Parameters
    ----------
    path
        The file; made where there is none, in a folder that exists.
    clock
        Unix time in seconds.

    Attributes
    ----------
    rows
        What it held when it was opened, oldest first.

    Raises
    ------
    JournalError
        If it cannot be read or written, is damaged, or is in use.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._broken = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalError(_cannot(path, "opened", error)) from error
        try:
            self._lock()
            self.rows = self._load()
        except BaseException:
            os.close(self._file)
            raise
        self._next = len(self.rows) + 1

    def __enter__(self) -> Journal:
        """Return the journal itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def append(self, kind: Kind, **data: Any) -> Row:  # noqa: ANN401 - whatever JSON holds
        """Return a new row, which is on the disk.

        Raises
        ------
        JournalError
            If it cannot be written. Nothing more can be then: what the file holds is unknown.
        """
        if self._broken:
            raise JournalError(f"{self._path}: an earlier row could not be written; start anew.")
        row = Row(self._next, self._clock(), kind, data)
        line = row.line()
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(None, "was not written to its end")
            os.fsync(self._file)
        except OSError as error:
            self._broken = True
            raise JournalError(_cannot(self._path, "written", error)) from error
        self._next += 1
        return row

    def close(self) -> None:
        """Close the file and let others have it."""
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(
                f"{self._path}: is in use by another responder; one journal has one."
            ) from None

    def _load(self) -> tuple[Row, ...]:
        size = os.fstat(self._file).st_size
        if size > MAX_BYTES:
            raise JournalError(
                f"{self._path}: has {size} bytes; {MAX_BYTES} are read. "
                "Move it away when nothing is under way."
            )
        with open(self._file, "rb", closefd=False) as file:
            content = file.read()
        *lines, torn = content.split(b"\n")
        rows = tuple(self._row(number, line) for number, line in enumerate(lines, 1))
        if torn:
            _LOG.warning("dropped a row that was not written to its end bytes=%d", len(torn))
            os.ftruncate(self._file, len(content) - len(torn))
        os.lseek(self._file, 0, os.SEEK_END)
        if not rows:
            self._keep_name()
        return rows

    def _row(self, number: int, line: bytes) -> Row:
        try:
            return parse_row(line, number)
        except RowError as error:
            raise JournalError(
                f"{self._path}, line {number}: {error}. What was done after it is unknown: compare "
                "with the cluster, then move the file away."
            ) from None

    def _keep_name(self) -> None:
        """Write the folder's entry to the disk: a new file is lost without it."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        except OSError as error:
            raise JournalError(_cannot(self._path, "written", error)) from error
        finally:
            os.close(folder)


def _cannot(path: Path, what: str, error: OSError) -> str:
    return f"{path}: cannot be {what}: {error.strerror}. Nothing is done without a journal."
