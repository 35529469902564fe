"""Runs the collectors of this process one after another, and around one that blocks.

A thread per collector costs more than most collectors do: each has to be woken, and all of them
contend for Python's interpreter lock. In one thread they cost what they do; only while a call does
not return do the others go on in a second one, which is kept for the next time.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# After this time without progress, what waits is given to another thread. Chosen: collectors take a
# millisecond or so (docs/benchmarks.md), and the deadline of all is 0.8 s.
PATIENCE_SECONDS = 0.025


class SerialExecutor:
    """Work is done in the order it comes, in as few threads as nothing blocks.

    Parameters
    ----------
    name
        Of its threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        # The one that slept last is woken first, so that the others sleep on.
        self._idle: list[threading.Semaphore] = []
        self._busy = 0
        self._done = 0
        self._done_before = 0
        self._users = 0
        self._closed = False

    def join(self) -> None:
        """Add a user."""
        self._users += 1

    def leave(self) -> None:
        """Remove a user; after the last one the threads end."""
        with self._lock:
            self._users -= 1
            self._closed = self._users <= 0
            if self._closed:
                for sleeper in self._idle:
                    sleeper.release()

    def submit(self, work: Callable[[], None]) -> None:
        """Have something done, which must not raise; returns at once."""
        with self._lock:
            self._waiting.append(work)
            if not self._busy:
                self._wake()

    def relieve(self) -> None:
        """Go on in another thread if nothing was done since the last call; returns at once.

        Whoever waits for work calls it every ``PATIENCE_SECONDS``.
        """
        with self._lock:
            if self._waiting and self._done == self._done_before:
                self._wake()
            self._done_before = self._done

    def _wake(self) -> None:
        self._busy += 1
        if self._idle:
            self._idle.pop().release()
        else:
            # A daemon: a call that never returns must not keep the exporter from ending.
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        sleeper = threading.Semaphore(0)
        while True:
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                if work is None:
                    self._busy -= 1
                    if self._closed:
                        return
                    self._idle.append(sleeper)
            if work is None:
                sleeper.acquire()
                if self._closed:
                    return
                continue
            work()
            with self._lock:
                self._done += 1
