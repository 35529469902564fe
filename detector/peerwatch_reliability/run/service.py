"""Makes the books again and again; what fails leaves the last ones as they were."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from peerwatch_common.logs import one_line
from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.report.document import document_of
from peerwatch_reliability.report.gather import Gatherer
from peerwatch_reliability.run.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_reliability.lemons.score import Score
    from peerwatch_reliability.report.books import Books
    from peerwatch_reliability.settings.config import ReliabilityConfig

_LOG = logging.getLogger(__name__)


class Service:
    """The running program.

    Parameters
    ----------
    config
        The settings.
    make
        Returns the books up to a time; unset: of the settings' sources.
    clock
        Unix time in seconds.

    Attributes
    ----------
    document
        The newest books as plain values; None: none were made.
    made_at
        When, in Unix seconds.
    scores
        Of the nodes.
    totals
        Counters.
    """

    def __init__(
        self,
        config: ReliabilityConfig,
        make: Callable[[float], Books] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._make = make or Gatherer(config).books
        self._clock = clock
        self._end = threading.Event()
        self.document: dict[str, Any] | None = None
        self.made_at: float | None = None
        self.scores: Sequence[Score] = ()
        self.totals = Totals()

    def run(self) -> None:
        """Make the books until ``stop``."""
        while not self._end.is_set():
            began = time.monotonic()
            self.make()
            self._end.wait(max(1.0, self.config.interval_seconds - (time.monotonic() - began)))

    def make(self) -> None:
        """Make the books once."""
        try:
            books = self._make(self._clock())
        except SourceError as error:
            _LOG.error("no books detail=%r", one_line(str(error)))
            return
        except Exception:
            # The thread must go on: a source that mends itself is read again.
            _LOG.exception("no books")
            return
        self.totals.add(books)
        self.document, self.scores = document_of(books), books.lemons.scores
        self.made_at = books.window.end
        _LOG.info("books made jobs=%d missing=%d", len(books.chains), len(books.missing))

    def stop(self) -> None:
        """Let ``run`` return."""
        self._end.set()
