"""Reads a source again and again in a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class Periodic(Generic[T]):
    """The newest result of a function that may take long; made when it is first asked for.

    Parameters
    ----------
    name
        Of the thread.
    interval_seconds
        Pause between two calls.
    read
        The function; what it raises is its result.
    """

    def __init__(self, name: str, interval_seconds: float, read: Callable[[], T]) -> None:
        self._name = name
        self._interval = interval_seconds
        self._read = read
        self._newest: T | Exception | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def newest(self) -> T | Exception | None:
        """Return the newest result; None before the first. Starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return self._newest

    def close(self) -> None:
        """End the thread, after the call it is in; returns at once."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._newest = self._read()
            except Exception as error:
                if type(error) is not type(self._newest):
                    _LOG.debug("source not read source=%s", self._name, exc_info=True)
                self._newest = error
            self._ended.wait(self._interval)
