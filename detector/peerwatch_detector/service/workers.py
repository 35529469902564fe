"""Threads that wait for the network, so that the loop does not.

They are daemons: a read that hangs to its deadline does not keep the process from ending.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How a piece of work ended.

    Parameters
    ----------
    result
        What it returned; None if it raised.
    error
        What it raised.
    seconds
        How long it took.
    """

    result: T | None
    error: Exception | None
    seconds: float


def attempt(work: Callable[[], T]) -> Outcome[T]:
    """Do a piece of work here and now, whatever becomes of it."""
    began = time.perf_counter()
    result, error = None, None
    try:
        result = work()
    except Exception as raised:
        error = raised
    return Outcome(result, error, time.perf_counter() - began)


class Inbox:
    """What the threads have done, for the loop to go on with in its own thread."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def put(self, follow: Callable[[], None]) -> None:
        """Leave what is to be done next."""
        self._done.put(follow)

    def take(self, seconds: float) -> bool:
        """Wait at most so long for something to go on with, do it, and say whether it came."""
        try:
            follow = self._done.get(block=seconds > 0, timeout=seconds or None)
        except queue.Empty:
            return False
        follow()
        return True


class Workers:
    """Some threads.

    Parameters
    ----------
    count
        How many.
    name
        What they are called in logs and debuggers.
    inbox
        Where what they have done goes.
    """

    def __init__(self, count: int, name: str, inbox: Inbox) -> None:
        self._inbox = inbox
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count = count
        for index in range(count):
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True).start()

    def submit(self, work: Callable[[], T], then: Callable[[Outcome[T]], None]) -> None:
        """Let a thread do ``work``, and whoever takes from the inbox do ``then`` with it."""

        def run() -> None:
            outcome = attempt(work)
            self._inbox.put(lambda: then(outcome))

        self._todo.put(run)

    def stop(self) -> None:
        """Let each thread end when it is done with what it is at; waits for none."""
        for _ in range(self._count):
            self._todo.put(None)

    def _work(self) -> None:
        while (task := self._todo.get()) is not None:
            task()
