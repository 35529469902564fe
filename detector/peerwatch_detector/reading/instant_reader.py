"""Present values of a job's series, several queries at a time, apart from the reading of ranges.

It has connections, limits and a patience of its own: a server that is slow to answer here keeps no
range waiting, and one that is slow with ranges keeps no evidence waiting.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from peerwatch_detector.errors import ReadError, ReadFailure, ThrottledError
from peerwatch_detector.reading.statistics import REFUSALS
from peerwatch_detector.reading.transport.backoff import TOLERATED, Backoff
from peerwatch_detector.reading.transport.connection import Connection
from peerwatch_detector.reading.transport.instant import instant
from peerwatch_detector.reading.transport.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_detector.frame import Series
    from peerwatch_detector.reading.settings import ReadingSettings

# What one query asks for may be too much or wrong; the next query may be answered.
_OF_THE_QUERY: frozenset[ReadFailure] = REFUSALS | {"too_large", "malformed"}

Answers = dict[str, "list[Series] | ReadError"]
_Ask = Callable[[Connection, str, float], "list[Series]"]


class Instants(Protocol):
    """Answers several queries about one moment."""

    @property
    def errors(self) -> Mapping[ReadFailure, int]:
        """Failed requests so far, by reason."""

    def read(self, queries: Mapping[str, str]) -> Answers:
        """Return the series of every query by its name, one sample each."""

    def close(self) -> None:
        """Break off what is under way."""


class InstantReader:
    """Asks a server for the present values of several queries; for any thread.

    Parameters
    ----------
    settings
        Address and limits; ``timeout_seconds`` bounds all queries of one ``read`` together.
    connections
        Most reads at the same time.
    tolerated
        As of ``Backoff``.
    """

    def __init__(
        self, settings: ReadingSettings, connections: int, tolerated: int = TOLERATED
    ) -> None:
        self.settings = settings
        self._errors: dict[ReadFailure, int] = {}
        self._lock = threading.Lock()
        self._backoff = Backoff(settings.longest_wait_seconds, tolerated)
        self._throttle = Throttle(settings.longest_wait_seconds)
        self._connections = [Connection(settings) for _ in range(connections)]
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        for connection in self._connections:
            self._idle.put(connection)

    @property
    def errors(self) -> Mapping[ReadFailure, int]:
        """Failed requests so far, by reason."""
        with self._lock:
            return dict(self._errors)

    def close(self) -> None:
        """Break off what is under way and close the connections."""
        for connection in self._connections:
            connection.end()
        for connection in self._connections:
            connection.close()

    def read(self, queries: Mapping[str, str]) -> Answers:
        """Ask for the present values of every query.

        Parameters
        ----------
        queries
            PromQL by name.

        Returns
        -------
        dict[str, list[Series] | ReadError]
            By name: the series with one sample each, or why this query was not answered.

        Raises
        ------
        ReadError
            If the server does not answer at all, or is left alone since it did not before.
        """
        return self._read(
            queries, lambda connection, query, until: instant(connection, query, None, until)
        )

    def _read(self, queries: Mapping[str, str], ask: _Ask) -> Answers:
        deadline = time.monotonic() + self.settings.timeout_seconds
        with self._connection() as connection:
            return {
                name: self._answer(connection, query, deadline, ask)
                for name, query in queries.items()
            }

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        connection = self._idle.get()
        try:
            yield connection
        except BaseException:
            # Whatever state it is in, the next request gets a new one.
            connection.close()
            raise
        finally:
            self._idle.put(connection)

    def _answer(
        self, connection: Connection, query: str, deadline: float, ask: _Ask
    ) -> list[Series] | ReadError:
        asked = time.monotonic()
        with self._lock:
            self._backoff.check(asked)
        self._throttle.check()
        try:
            series = ask(connection, query, deadline)
        except ReadError as error:
            connection.close()
            self._failed(error, asked)
            if error.reason in _OF_THE_QUERY:
                return error
            raise
        self._throttle.answered(time.monotonic())
        with self._lock:
            self._backoff.succeeded()
        if len(series) > self.settings.max_series:
            excess = ReadError(
                "too_large",
                f"{connection.url} answered {query!r:.200} with {len(series)} series, more than "
                f"prometheus.reading.max_series {self.settings.max_series}.",
            )
            self._failed(excess, asked)
            return excess
        return series

    def _failed(self, error: ReadError, asked: float) -> None:
        now = time.monotonic()
        if isinstance(error, ThrottledError):
            self._throttle.throttled(error, asked, now)
        with self._lock:
            self._errors[error.reason] = self._errors.get(error.reason, 0) + 1
            if error.reason not in _OF_THE_QUERY and error.reason != "throttled":
                self._backoff.failed(error, now)
