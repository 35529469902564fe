"""The past of a few series, for views that people open: at one moment, and over a stretch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from peerwatch_detector.reading.instant_reader import Answers, InstantReader
from peerwatch_detector.reading.transport.instant import instant
from peerwatch_detector.reading.transport.stepped import stepped


class History(Protocol):
    """Answers queries about the past."""

    def at(self, queries: Mapping[str, str], time: float) -> Answers:
        """Return the series of every query by its name, as they were at a Unix time."""

    def over(self, queries: Mapping[str, str], start: float, end: float, step: float) -> Answers:
        """Return them at every ``step`` seconds between two Unix times."""


class HistoryReader(InstantReader):
    """Asks a server about the past; for any thread. Parameters are those of ``InstantReader``."""

    def at(self, queries: Mapping[str, str], time: float) -> Answers:
        """Return the series of every query by its name, as they were at a Unix time.

        Raises
        ------
        ReadError
            If the server does not answer at all, or is left alone since it did not before.
        """
        return self._read(
            queries, lambda connection, query, until: instant(connection, query, time, until)
        )

    def over(self, queries: Mapping[str, str], start: float, end: float, step: float) -> Answers:
        """Return the series of every query at every ``step`` seconds between two Unix times.

        Raises
        ------
        ReadError
            As ``at``.
        """
        span = (start, end, step)
        return self._read(
            queries, lambda connection, query, until: stepped(connection, query, span, until)
        )
