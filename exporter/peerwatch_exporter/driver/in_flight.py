"""The requests in flight of one collector: since when each is unanswered."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_exporter.schedule.worker import LATE_SECONDS, Report

if TYPE_CHECKING:
    from collections.abc import Collection

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.driver.slot import CollectorAnswer

_LOG = logging.getLogger(__name__)
# The key for a collector that is stuck as a whole.
WHOLE = ""
# The error of a run that waits for the first driver process to load.
STARTING = "driver_starting"


@dataclass(slots=True)
class InFlightRequests:
    """One collector's requests; a restart of the driver process does not end them.

    Attributes
    ----------
    asked_at
        When the run under way was asked for (monotonic seconds), or None.
    expired
        Whether that run passed its deadline.
    stuck_since
        By GPU index as text, or ``""``: when the first unanswered request was made.
    """

    collector: str
    asked_at: float | None = None
    expired: bool = False
    timeouts: int = 0
    last_success: float | None = None
    stuck_since: dict[str, float] = field(default_factory=dict)
    _logged: str | None = None

    def begin(self, now: float) -> None:
        """Start a run."""
        self.asked_at = now
        self.expired = False

    def end(self) -> None:
        """End the run under way."""
        self.asked_at = None
        self.expired = False

    def expire(self) -> None:
        """Say that the run under way passed its deadline; it counts once."""
        if not self.expired:
            self.expired = True
            self.timeouts += 1

    def stuck(self, key: str, since: float) -> None:
        """Say that a GPU, or the whole, has not answered a request made at ``since``."""
        self.stuck_since.setdefault(key, since)

    def answered(self, keys: Collection[str]) -> None:
        """Say that these answered."""
        for key in keys:
            self.stuck_since.pop(key, None)

    def report(
        self,
        families: tuple[Family, ...],
        answer: CollectorAnswer | None,
        *,
        error: str | None,
        success: bool,
        now: float,
        detail: str = "",
        is_logged: bool = True,
    ) -> Report:
        """Return the report; ``answer`` is the run's own, None while it is under way.

        ``detail`` explains ``error`` in the log where no answer does; not ``is_logged`` is what
        somebody else logs.
        """
        elapsed = 0.0 if self.asked_at is None else now - self.asked_at
        if is_logged and (error != "deadline_exceeded" or elapsed >= LATE_SECONDS):
            self._log(error, detail if answer is None else answer.detail)
        return Report(
            collector=self.collector,
            families=families,
            success=success,
            error=error,
            duration=elapsed if answer is None else answer.took,
            last_success=self.last_success,
            timeouts=self.timeouts,
            stuck_seconds={key: now - since for key, since in self.stuck_since.items()},
            started=None if answer is None else answer.began,
        )

    def _log(self, error: str | None, detail: str) -> None:
        """Log a change of what is wrong, not every run that finds it so."""
        # Every start begins so; it is worth a log line only if it lasts.
        if error in {self._logged, STARTING}:
            return
        self._logged = error
        if error is None:
            _LOG.info("collector recovered collector=%s", self.collector)
        else:
            _LOG.warning(
                "collector failed collector=%s error=%s detail=%r",
                self.collector,
                error,
                detail,
            )
