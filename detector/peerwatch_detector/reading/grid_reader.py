"""Reads metrics of a job onto a time grid, by the API that suits the server and the range.

    reader = GridReader(ReadingSettings(url="http://127.0.0.1:9090"))
    for reading in reader.read(selections, Grid.of_seconds(start, end), nodes):
        frame = reading.result().block.frame(job_id, reading.selection.metric, nodes)

Requests that would pass the server's limits are asked in parts; one that the server refuses, does
not answer in time or breaks off is cut in half and asked again.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from peerwatch_detector.errors import ReadError, ReadFailure, ThrottledError
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading.decode.prepare import prepare
from peerwatch_detector.reading.decode.status import UnsplittableError
from peerwatch_detector.reading.known_layouts import KnownLayouts
from peerwatch_detector.reading.range_reader import Reading
from peerwatch_detector.reading.selection import Grid, Selection, SelectionPart
from peerwatch_detector.reading.settings import Api, ReadingSettings
from peerwatch_detector.reading.statistics import REFUSALS, ReadingStatistics
from peerwatch_detector.reading.transport.apis import APIS
from peerwatch_detector.reading.transport.backoff import Backoff
from peerwatch_detector.reading.transport.connection import Connection
from peerwatch_detector.reading.transport.instant import KnownAnswers, instant
from peerwatch_detector.reading.transport.probe import Abilities, probe
from peerwatch_detector.reading.transport.request import RangeRequest, RangeResult
from peerwatch_detector.reading.transport.throttle import Throttle
from peerwatch_detector.reading.transport.uncompiled import MAX_UNCOMPILED_SAMPLES

# A smaller request may succeed where one failed for these reasons.
_SMALLER_MAY_WORK: frozenset[ReadFailure] = frozenset(
    {"refused", "too_large", "timeout", "truncated"}
)
# The whole server is at fault, whatever was asked.
_OF_THE_SERVER: frozenset[ReadFailure] = frozenset(
    {"unreachable", "timeout", "http_5xx", "truncated", "throttled"}
)
# The server does not do this, whatever is asked; another api may.
_ANOTHER_API_MAY_WORK: frozenset[ReadFailure] = frozenset({"http_4xx", "malformed"})
# Series of a selection whose nodes are not known, to begin with. Chosen: eight nodes of eight GPUs;
# the first answer says how many there are.
_UNKNOWN_SERIES = 64


class GridReader:
    """The reader of every server with the query API.

    Parameters
    ----------
    settings
        Address, api, limits.
    """

    def __init__(self, settings: ReadingSettings) -> None:
        self.settings = settings
        self._statistics = ReadingStatistics()
        # Of ranges; that the server answers instant queries says nothing about them.
        self._ranges_up = True
        self._abilities: Abilities | None = None
        self._lock = threading.Lock()
        self._layouts = KnownLayouts()
        self._backoff = Backoff(settings.longest_wait_seconds)
        self._throttle = Throttle(settings.longest_wait_seconds)
        # Until when a selection of so many nodes is not split, since no part of it was small
        # enough for the server: by what was asked, on the clock of ``time.monotonic``.
        self._whole_until: dict[tuple[Selection, int], float] = {}
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        self._connections = [Connection(settings) for _ in range(settings.connections)]
        for connection in self._connections:
            self._idle.put(connection)
        self._pool = ThreadPoolExecutor(settings.connections, "peerwatch-read")
        self._probing = threading.Lock()
        # Of its own, so that who asks which jobs there are does not wait for their ranges.
        self._asking = threading.Lock()
        self._instants = Connection(settings)
        self._answers = KnownAnswers()
        self._connections.append(self._instants)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Break off what is under way, end the threads and close the connections."""
        for connection in self._connections:
            connection.end()
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()

    @property
    def statistics(self) -> ReadingStatistics:
        """What reading cost so far, as of now."""
        with self._lock:
            now = time.monotonic()
            wait = max(self._backoff.left(now), self._throttle.left(now))
            up = self._statistics.up and self._ranges_up
            return replace(self._statistics.snapshot(), wait_seconds=wait, up=up)

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        """Return the value of every series of a query at a Unix time, one sample each.

        It is a ``PartialAnswer`` if the server says that some are missing.

        Parameters
        ----------
        query
            PromQL.
        at
            When; None for now.

        Raises
        ------
        ReadError
            If the server does not answer usefully, or is left alone since it failed before.
        """
        # Compiling must not take from the time that the response has.
        prepare()
        deadline = time.monotonic() + self.settings.timeout_seconds
        self._backoff.check(time.monotonic())
        try:
            with self._asking, self._throttling():
                series = instant(self._instants, query, at, deadline, self._answers)
        except ReadError as error:
            self._instants.close()
            self._count(error, whole_server=True)
            raise
        with self._lock:
            self._statistics.up = True
            self._statistics.samples += len(series)
            self._statistics.partial += isinstance(series, PartialAnswer)
            self._backoff.succeeded()
        return series

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        """Read selections on the same steps, each with an outcome of its own.

        Parameters
        ----------
        selections
            What; they are read at the same time, as far as there are connections.
        grid
            On which steps.
        nodes
            The job's nodes, as far as they are known: they tell how much a request asks for, and
            by what it can be split.
        deadline
            On the clock of ``time.monotonic``; that of the settings if it is earlier.
        """
        # Compiling must not take from the time that the responses have.
        prepare()
        deadline = min(deadline, time.monotonic() + self.settings.deadline_seconds)
        try:
            abilities = self._probed(deadline)
        except ReadError as error:
            return [
                Reading(selection, error, self._apis(selection, grid, None)[0])
                for selection in selections
            ]
        names = tuple(nodes)
        todo = deque(enumerate(selections))
        found: dict[int, Reading] = {}

        def work() -> None:
            while todo:
                try:
                    place, selection = todo.popleft()
                except IndexError:
                    return
                found[place] = self._read_one(selection, grid, names, abilities, deadline)

        # Half of the connections: the other half is for the jobs beside a slow one.
        together = min((self.settings.connections + 1) // 2, len(selections))
        for future in [self._pool.submit(work) for _ in range(together)]:
            future.result()
        readings = [found[place] for place in range(len(selections))]
        self._note_ranges(readings)
        return readings

    def _note_ranges(self, readings: Sequence[Reading]) -> None:
        """Note whether ranges come at all: not while each of a job's ends for the server's sake."""
        failed = [
            isinstance(reading.outcome, ReadError) and reading.outcome.reason in _OF_THE_SERVER
            for reading in readings
        ]
        if failed:
            with self._lock:
                self._ranges_up = not all(failed)

    def _read_one(
        self,
        selection: Selection,
        grid: Grid,
        nodes: tuple[str, ...],
        abilities: Abilities,
        deadline: float,
    ) -> Reading:
        apis = self._apis(selection, grid, abilities)
        part = SelectionPart(selection, grid, None, nodes)
        for api in apis:
            try:
                result = self._whole(api, part, abilities, deadline)
            except ReadError as error:
                self._count(error)
                last = api == apis[-1] or error.reason not in _ANOTHER_API_MAY_WORK
                if last or isinstance(error, UnsplittableError):
                    return Reading(selection, error, api)
            else:
                self._note(selection, result)
                return Reading(selection, result, api)
        raise AssertionError("There is always a way.")

    def _apis(
        self, selection: Selection, grid: Grid, abilities: Abilities | None
    ) -> tuple[Api, ...]:
        """Return the APIs to try, in order."""
        if selection.expression is not None:
            return ("query_range",)
        if self.settings.api == "query_range" or (self.settings.api != "auto" and prepare()):
            return (self.settings.api,)
        apis = abilities.apis if abilities else ("query",)
        short = grid.steps * grid.step / 1000 <= self.settings.increment_seconds
        return apis[apis.index("query") :] if short or not prepare() else apis

    def _whole(
        self, api: Api, part: SelectionPart, abilities: Abilities, deadline: float
    ) -> RangeResult:
        """Read a selection in as few requests as the limits allow."""
        parts = [
            SelectionPart(part.selection, grid, None, part.known_nodes)
            for grid in part.grid.cut(self._most_steps(api, part))
        ]
        results = [
            self._part(api, part, abilities, deadline, self.settings.max_splits) for part in parts
        ]
        return RangeResult.joined(results, by_nodes=False)

    def _most_steps(self, api: Api, part: SelectionPart) -> int:
        """Return how many steps one request may have; raw formats are not built in memory."""
        if api in {"remote_read", "export"}:
            return part.grid.steps
        most = self.settings.max_samples if prepare() else MAX_UNCOMPILED_SAMPLES
        most //= self._series(part)
        return max(1, min(self.settings.max_points, most, part.grid.steps))

    def _series(self, part: SelectionPart) -> int:
        """Return how many series to expect."""
        known = len(part.known_nodes if part.nodes is None else part.nodes) or _UNKNOWN_SERIES
        seen = self._layouts.get(part.selection) if part.nodes is None else None
        return max(known, 0 if seen is None else seen.rows)

    def _part(
        self, api: Api, part: SelectionPart, abilities: Abilities, deadline: float, splits: int
    ) -> RangeResult:
        """Ask one request, or two halves of it where it fails for its size."""
        try:
            return self._ask(api, part, abilities, deadline)
        except UnsplittableError:
            raise
        except ReadError as error:
            halves = part.split() if splits > 0 else None
            whole = (part.selection, hash(part.known_nodes))
            if error.reason == "refused" and self._whole_until.get(whole, 0.0) > time.monotonic():
                raise
            if error.reason not in _SMALLER_MAY_WORK or halves is None:
                if error.reason == "refused":
                    self._keep_whole(whole)
                raise
            if time.monotonic() >= deadline:
                raise
            self._count(error)
        with self._lock:
            self._statistics.splits += 1
        results = [self._part(api, half, abilities, deadline, splits - 1) for half in halves]
        return RangeResult.joined(results, by_nodes=halves[0].grid == halves[1].grid)

    def _keep_whole(self, what: tuple[Selection, int]) -> None:
        """Note that splitting did not help, and forget the notes that are too old."""
        now = time.monotonic()
        with self._lock:
            kept = {key: until for key, until in self._whole_until.items() if until > now}
            self._whole_until = {**kept, what: now + self.settings.longest_wait_seconds}

    def _ask(
        self, api: Api, part: SelectionPart, abilities: Abilities, deadline: float
    ) -> RangeResult:
        connection = self._idle.get()
        began, sent = time.monotonic(), True
        until = min(deadline, began + self.settings.timeout_seconds)
        request = RangeRequest(
            part,
            self.settings,
            until,
            self._series(part),
            abilities.open_left,
            abilities.skips_nan,
            self._layouts.get(part.selection),
        )
        try:
            with self._throttling():
                return APIS[api](connection, request)
        except BaseException as error:
            # Whatever state the connection is in, the next request gets a new one.
            connection.close()
            sent = not isinstance(error, ThrottledError) or error.sent
            raise
        finally:
            self._idle.put(connection)
            with self._lock:
                seconds = self._statistics.seconds
                seconds[api] = seconds.get(api, 0.0) + time.monotonic() - began
                self._statistics.requests += sent

    @contextmanager
    def _throttling(self) -> Iterator[None]:
        """Ask nothing while the server is left alone, and take in what it says about it.

        Raises
        ------
        ThrottledError
            If it is left alone, or asks for it now.
        """
        self._throttle.check()
        asked = time.monotonic()
        try:
            yield
        except ThrottledError as error:
            self._throttle.throttled(error, asked, time.monotonic())
            raise
        self._throttle.answered(time.monotonic())

    def _probed(self, deadline: float) -> Abilities:
        """Return what the server can do; it is asked once."""
        with self._probing:
            self._backoff.check(time.monotonic())
            if self._abilities is None:
                self._abilities = self._probe(deadline)
                chosen = self.settings.api
                with self._lock:
                    self._statistics.api = self._abilities.apis[0] if chosen == "auto" else chosen
            return self._abilities

    def _probe(self, deadline: float) -> Abilities:
        connection = self._idle.get()
        until = min(deadline, time.monotonic() + self.settings.timeout_seconds)
        try:
            with self._throttling():
                return probe(connection, until)
        except ReadError as error:
            connection.close()
            self._count(error, whole_server=True)
            raise
        finally:
            self._idle.put(connection)

    def _note(self, selection: Selection, result: RangeResult) -> None:
        with self._lock:
            self._layouts.remember(selection, result.block.layout)
            self._statistics.up = True
            self._statistics.samples += result.block.samples
            self._statistics.received_bytes += result.received
            self._statistics.partial += result.annotations.partial
            self._backoff.succeeded()

    def _count(self, error: ReadError, *, whole_server: bool = False) -> None:
        """Count a failure; of a request that every server answers it is the server's own."""
        with self._lock:
            if isinstance(error, ThrottledError) and not error.sent:
                self._statistics.deferred += 1
                return
            self._statistics.failed(error.reason)
            if whole_server:
                if error.reason not in REFUSALS and error.reason != "throttled":
                    self._backoff.failed(error, time.monotonic())
                self._statistics.up = False
