"""Reads metrics of a job onto a time grid, by the way that suits the server and the range.

    reader = GridReader(ReadingSettings(url="http://127.0.0.1:9090"))
    for reading in reader.read(selections, Grid.of_seconds(start, end), nodes):
        frame = reading.result().block.frame(job_id, reading.selection.metric, nodes)

Questions that would pass the server's limits are asked in parts; one that the server refuses, does
not answer in time or breaks off is cut in half and asked again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Protocol, Self

from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.reading.block import join_nodes, join_steps
from peerwatch_detector.reading.connection import Connection
from peerwatch_detector.reading.envelope import Remarks
from peerwatch_detector.reading.prepare import prepare
from peerwatch_detector.reading.probe import Abilities, probe
from peerwatch_detector.reading.question import Question, Result
from peerwatch_detector.reading.selection import Grid, Piece, Selection
from peerwatch_detector.reading.settings import ReadingSettings, Way
from peerwatch_detector.reading.status import HopelessError
from peerwatch_detector.reading.ways import WAYS

# A smaller question may succeed where one failed for these reasons.
_SMALLER_MAY_DO: frozenset[ReadFailure] = frozenset({"refused", "timeout", "truncated"})
# The server does not do this, whatever is asked; another way may.
_OTHER_WAY_MAY_DO: frozenset[ReadFailure] = frozenset({"http_4xx", "malformed"})
# Series of a selection whose nodes are not known, to begin with.
_UNKNOWN_SERIES = 64


@dataclass(slots=True)
class ReadingStatistics:
    """What reading cost so far; published as metrics."""

    samples: int = 0
    received_bytes: int = 0
    requests: int = 0
    splits: int = 0
    partial: int = 0
    errors: dict[ReadFailure, int] = field(default_factory=dict)
    up: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How reading one selection went.

    Parameters
    ----------
    selection
        What was asked for.
    outcome
        The series, or why there are none.
    way
        How it was read.
    """

    selection: Selection
    outcome: Result | ReadError
    way: Way

    def result(self) -> Result:
        """Return the series.

        Raises
        ------
        ReadError
            If reading them failed.
        """
        if isinstance(self.outcome, ReadError):
            raise self.outcome
        return self.outcome


class RangeReader(Protocol):
    """Delivers metrics of a job on a time grid."""

    statistics: ReadingStatistics

    def read(
        self, selections: Sequence[Selection], grid: Grid, nodes: Sequence[str] = ()
    ) -> list[Reading]:
        """Read selections on the same steps, each with an outcome of its own."""


class GridReader:
    """The reader of ranges for every server with the query API.

    Parameters
    ----------
    settings
        Address, way, limits.
    """

    def __init__(self, settings: ReadingSettings) -> None:
        self.settings = settings
        self.statistics = ReadingStatistics()
        self._abilities: Abilities | None = None
        self._lock = threading.Lock()
        self._counts: dict[Selection, int] = {}
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue()
        for _ in range(settings.connections):
            self._idle.put(Connection(settings))
        self._pool = ThreadPoolExecutor(settings.connections, "peerwatch-read")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and close the connections."""
        self._pool.shutdown()
        while not self._idle.empty():
            self._idle.get().close()

    def read(
        self, selections: Sequence[Selection], grid: Grid, nodes: Sequence[str] = ()
    ) -> list[Reading]:
        """Read selections on the same steps, each with an outcome of its own.

        Parameters
        ----------
        selections
            What; they are read at the same time, as far as there are connections.
        grid
            On which steps.
        nodes
            The job's nodes, as far as they are known: they tell how much a question asks for, and
            by what it can be split.
        """
        prepare()
        deadline = time.monotonic() + self.settings.deadline_seconds
        try:
            abilities = self._probed(deadline)
        except ReadError as error:
            self._count(error)
            return [Reading(one, error, self._ways(one, grid, None)[0]) for one in selections]
        names = tuple(nodes)
        waiting = [
            self._pool.submit(self._read_one, one, grid, names, abilities, deadline)
            for one in selections
        ]
        return [one.result() for one in waiting]

    def _read_one(
        self,
        selection: Selection,
        grid: Grid,
        nodes: tuple[str, ...],
        abilities: Abilities,
        deadline: float,
    ) -> Reading:
        ways = self._ways(selection, grid, abilities)
        piece = Piece(selection, grid, None, nodes)
        for way in ways:
            try:
                result = self._whole(way, piece, abilities, deadline)
            except ReadError as error:
                self._count(error)
                last = way == ways[-1] or error.reason not in _OTHER_WAY_MAY_DO
                if last or isinstance(error, HopelessError):
                    return Reading(selection, error, way)
            else:
                self._note(selection, result)
                return Reading(selection, result, way)
        raise AssertionError("There is always a way.")

    def _ways(
        self, selection: Selection, grid: Grid, abilities: Abilities | None
    ) -> tuple[Way, ...]:
        """Return the ways to try, in order."""
        if selection.expression is not None:
            return ("query_range",)
        if self.settings.way != "auto":
            return (self.settings.way,)
        ways = abilities.ways if abilities else ("query",)
        seconds = grid.steps * grid.step / 1000
        return ways[ways.index("query") :] if seconds <= self.settings.increment_seconds else ways

    def _whole(self, way: Way, piece: Piece, abilities: Abilities, deadline: float) -> Result:
        """Read a selection in as few questions as the limits allow."""
        parts = [
            Piece(piece.selection, grid, None, piece.known_nodes)
            for grid in piece.grid.cut(self._most_steps(way, piece))
        ]
        results = [
            self._part(way, part, abilities, deadline, self.settings.max_splits) for part in parts
        ]
        return _joined(results, by_nodes=False)

    def _most_steps(self, way: Way, piece: Piece) -> int:
        """Return how many steps one question may have; raw formats are not built in memory."""
        if way in {"remote_read", "export"}:
            return piece.grid.steps
        most = self.settings.max_samples // self._series(piece)
        return max(1, min(self.settings.max_points, most, piece.grid.steps))

    def _series(self, piece: Piece) -> int:
        """Return how many series to expect."""
        known = len(piece.known_nodes if piece.nodes is None else piece.nodes) or _UNKNOWN_SERIES
        return max(known, self._counts.get(piece.selection, 0) if piece.nodes is None else 0)

    def _part(
        self, way: Way, piece: Piece, abilities: Abilities, deadline: float, splits: int
    ) -> Result:
        """Ask one question, or two halves of it where it fails for its size."""
        try:
            return self._ask(way, piece, abilities, deadline)
        except HopelessError:
            raise
        except ReadError as error:
            halves = piece.split() if splits > 0 else None
            if error.reason not in _SMALLER_MAY_DO or halves is None:
                raise
            if time.monotonic() >= deadline:
                raise
            self._count(error)
        with self._lock:
            self.statistics.splits += 1
        results = [self._part(way, half, abilities, deadline, splits - 1) for half in halves]
        return _joined(results, by_nodes=halves[0].grid == halves[1].grid)

    def _ask(self, way: Way, piece: Piece, abilities: Abilities, deadline: float) -> Result:
        until = min(deadline, time.monotonic() + self.settings.timeout_seconds)
        series = self._series(piece)
        question = Question(
            piece, self.settings, until, series, abilities.open_left, abilities.skips_nan
        )
        connection = self._idle.get()
        try:
            with self._lock:
                self.statistics.requests += 1
            return WAYS[way](connection, question)
        except BaseException:
            # Whatever state the connection is in, the next question gets a new one.
            connection.close()
            raise
        finally:
            self._idle.put(connection)

    def _probed(self, deadline: float) -> Abilities:
        if self._abilities is None:
            until = min(deadline, time.monotonic() + self.settings.timeout_seconds)
            connection = self._idle.get()
            try:
                self._abilities = probe(connection, until)
            finally:
                self._idle.put(connection)
        return self._abilities

    def _note(self, selection: Selection, result: Result) -> None:
        with self._lock:
            self._counts[selection] = len(result.block.keys) + result.block.duplicates
            self.statistics.up = True
            self.statistics.samples += result.block.samples
            self.statistics.received_bytes += result.received
            self.statistics.partial += result.remarks.partial

    def _count(self, error: ReadError) -> None:
        with self._lock:
            self.statistics.up = error.reason in {"refused", "http_4xx"}
            self.statistics.errors[error.reason] = self.statistics.errors.get(error.reason, 0) + 1


def _joined(results: Sequence[Result], *, by_nodes: bool) -> Result:
    if len(results) == 1:
        return results[0]
    blocks = [one.block for one in results]
    return Result(
        join_nodes(blocks) if by_nodes else join_steps(blocks),
        reduce(add, (one.remarks for one in results), Remarks()),
        sum(one.received for one in results),
    )
