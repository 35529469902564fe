"""A job's first samples, part by part: one is read in a thread while the one before is compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from peerwatch_detector.errors import ReadError

Part = frozenset[str]
Errors = dict[str, ReadError | None]


class ReadAhead:
    """Reads one part at a time.

    Its thread is a daemon: a read that hangs to its deadline does not keep the process from ending.

    Parameters
    ----------
    read
        Reads some metrics within so many seconds, and says of each why it could not be read.
    seconds
        For all parts together.
    """

    def __init__(self, read: Callable[[Part, float], Errors], seconds: float) -> None:
        self._read, self._left = read, seconds
        self._under_way: Future[Errors] | None = None

    def begin(self, part: Part) -> None:
        """Read a part in a thread."""
        assert self._under_way is None, "one part is read at a time"
        self._under_way = future = Future[Errors]()
        threading.Thread(
            target=self._work, args=(part, future), name="read-ahead", daemon=True
        ).start()

    def result(self) -> Errors:
        """Wait for the part that was begun, and return why its metrics could not be read."""
        assert self._under_way is not None, "a part was begun"
        future, self._under_way = self._under_way, None
        return future.result()

    def settle(self) -> None:
        """Wait for what nobody asked for any more."""
        if self._under_way is not None:
            self._under_way.exception()
            self._under_way = None

    def _work(self, part: Part, future: Future[Errors]) -> None:
        began = time.perf_counter()
        try:
            errors = self._read(part, self._left)
        except BaseException as error:
            future.set_exception(error)
        else:
            self._left -= time.perf_counter() - began
            future.set_result(errors)
