"""What the responder knows: the journal, and in a dry run the same without a file."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from peerwatch_responder.audit.replay import after, state_of
from peerwatch_responder.audit.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from peerwatch_responder.audit.row import Kind
    from peerwatch_responder.policy.state import State


class WritesRows(Protocol):
    """The journal, or what stands in for it."""

    def append(self, kind: Kind, **data: Any) -> Row:  # noqa: ANN401 - whatever JSON holds
        """Return a new row; it is kept when this returns."""


class Unwritten:
    """Keeps nothing: a dry run forgets what it would have done when it ends.

    Parameters
    ----------
    clock
        Unix time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._number = 0

    def append(self, kind: Kind, **data: Any) -> Row:  # noqa: ANN401 - whatever JSON holds
        """Return a new row."""
        self._number += 1
        return Row(self._number, self._clock(), kind, data)


class Books:
    """The state, and the rows that it comes from; for many threads.

    Parameters
    ----------
    journal
        Where rows are written.
    rows
        Those that it held already.
    """

    def __init__(self, journal: WritesRows, rows: Iterable[Row] = ()) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._state = state_of(rows)

    @property
    def state(self) -> State:
        """What is known now."""
        with self._lock:
            return self._state

    def write(self, kind: Kind, **data: Any) -> Row:  # noqa: ANN401 - whatever JSON holds
        """Write a row, on the disk when this returns, and know what it says.

        Raises
        ------
        JournalError
            If it cannot be written; nothing may be done then.
        """
        with self._lock:
            row = self._journal.append(kind, **data)
            self._state = after(self._state, row)
            return row
