"""Signals to a program as a queue, for its main thread to wait on."""

from __future__ import annotations

import queue
import signal

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
# A signal that the kernel gives to another thread is not seen before the main one wakes. Chosen:
# one wake-up a second costs nothing, and nobody minds an end that comes a second later.
LONGEST_WAIT_SECONDS = 1.0


class Signals:
    """Signals that came, in their order; make it in the main thread.

    Parameters
    ----------
    numbers
        Those that are caught from now on. A shell has background processes ignore SIGINT, unless
        it is one of them.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._came: queue.SimpleQueue[signal.Signals] = queue.SimpleQueue()
        for number in numbers:
            signal.signal(number, lambda number, _: self._came.put(signal.Signals(number)))

    def next(self, seconds: float = LONGEST_WAIT_SECONDS) -> signal.Signals | None:
        """Return the next signal; None: none came within these seconds."""
        try:
            return self._came.get(timeout=seconds)
        except queue.Empty:
            return None
