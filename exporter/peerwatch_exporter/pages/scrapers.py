"""Which scraper got which samples: none is ever sent twice to the same scraper."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Longer than names of hosts and replicas are; bounds what is remembered.
_LONGEST_NAME = 128


class LastScrape(NamedTuple):
    """The newest that a scraper got: the snapshot's number, and its Unix time."""

    number: int
    time: float


class Scrapers:
    """Remembers scrapers; not safe for several threads.

    Parameters
    ----------
    monotonic
        Seconds that only rise.
    most
        Scrapers remembered at once; the one that was away longest goes first.
    forget_seconds
        A scraper away for longer than this is a new one.
    """

    def __init__(
        self, monotonic: Callable[[], float], most: int = 64, forget_seconds: float = 600
    ) -> None:
        self._monotonic = monotonic
        self._most = most
        self._forget_seconds = forget_seconds
        # Oldest visit first.
        self._known: dict[str, tuple[LastScrape, float]] = {}

    def last(self, scraper: str) -> LastScrape | None:
        """Return what a scraper was given last; ``None`` if it is not remembered."""
        given, seen = self._known.get(scraper[:_LONGEST_NAME], (None, 0.0))
        return given if self._monotonic() - seen <= self._forget_seconds else None

    def record(self, scraper: str, given: LastScrape) -> None:
        """Remember what a scraper was given."""
        name = scraper[:_LONGEST_NAME]
        self._known.pop(name, None)
        self._known[name] = (given, self._monotonic())
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
