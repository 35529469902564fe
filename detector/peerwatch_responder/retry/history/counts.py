"""How often each advice was given, counted from the history as it grows."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING

from peerwatch_responder.retry.history.row import parse_row

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# As much at once as a history is read (store.MAX_BYTES); the next scrape reads on.
_MOST_BYTES = 64 << 20


class AdviceCounts:
    """Counts the rows of a history; only what is new is read again. For many threads.

    Parameters
    ----------
    path
        Its file; there may be none yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._place = 0
        self._file: tuple[int, int] | None = None
        self._counts: Counter[tuple[str, str]] = Counter()

    def read(self) -> Mapping[tuple[str, str], int]:
        """Return the counts by advice and reason; those of before where it cannot be read."""
        # Two servers may scrape at the same time: what is new counts once.
        with self._lock:
            return self._read()

    def _read(self) -> dict[tuple[str, str], int]:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if self._file != (status.st_dev, status.st_ino) or status.st_size < self._place:
                    # A person has put another file there: counted from its beginning.
                    self._file, self._place = (status.st_dev, status.st_ino), 0
                    self._counts.clear()
                file.seek(self._place)
                content = file.read(_MOST_BYTES)
        except OSError:
            return dict(self._counts)
        whole, newline, _ = content.rpartition(b"\n")
        self._place += len(whole) + len(newline)
        for line in whole.split(b"\n"):
            row = parse_row(line)
            if row is not None and row.kind == "advice":
                self._counts[row.advice, row.reason] += 1
        return dict(self._counts)
