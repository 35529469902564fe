"""The connections that are open, of which a new one replaces another when there is no room."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_common.web.connection import Connection


class ConnectionPool:
    """Connections at once, up to a limit; safe for any number of threads.

    Parameters
    ----------
    limit
        How many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threads: dict[Connection, threading.Thread] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._threads)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self.threads())

    def add(self, connection: Connection, thread: threading.Thread) -> bool:
        """Take a connection in, if need be in the place of another; return False if it is full.

        One is replaced that waits for its client, of the client that has most: who opens hundreds
        replaces its own, not the scraper's.
        """
        with self._lock:
            replaced = None
            if len(self._threads) >= self._limit:
                replaced = self._replaceable()
                if replaced is None:
                    return False
                # Out of the count at once: it ends by itself, and nothing waits for it.
                del self._threads[replaced]
            self._threads[connection] = thread
        if replaced is not None:
            replaced.cut()
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection, which may have been replaced already."""
        with self._lock:
            self._threads.pop(connection, None)

    def threads(self) -> dict[Connection, threading.Thread]:
        """Return the connections and their threads."""
        with self._lock:
            return dict(self._threads)

    def _replaceable(self) -> Connection | None:
        of_client = Counter(connection.client for connection in self._threads)
        waiting = [
            (-of_client[connection.client], since, number, connection)
            for number, connection in enumerate(self._threads)
            if (since := connection.waiting_since()) is not None
        ]
        return min(waiting)[-1] if waiting else None
