"""Makes the books of the time up to now from all sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_reliability.records import Window
from peerwatch_reliability.report.books import Books, books_of
from peerwatch_reliability.sources.kubernetes.days import DayReader
from peerwatch_reliability.sources.kubernetes.source import read_kubernetes
from peerwatch_reliability.sources.prometheus.evidence import NOTHING_OBSERVED, observed
from peerwatch_reliability.sources.prometheus.first_steps import FirstStepReader
from peerwatch_reliability.sources.prometheus.server import Server
from peerwatch_reliability.sources.prometheus.signals import NO_SIGNALS, read_signals
from peerwatch_reliability.sources.slurm.source import read_slurm

if TYPE_CHECKING:
    from peerwatch_reliability.records import Jobs
    from peerwatch_reliability.settings.config import ReliabilityConfig

_DAY = 86_400.0
# Ends of which the cause is looked for: those of a success need none.
_WITHOUT_CAUSE = frozenset({"completed", "cancelled", "preempted", "timeout", "running"})


class Gatherer:
    """Makes books; keeps what it has read of days that are over.

    Parameters
    ----------
    config
        The settings.
    """

    def __init__(self, config: ReliabilityConfig) -> None:
        self._config = config
        self._server = None if config.prometheus is None else Server(config.prometheus)
        self._steps = None if self._server is None else FirstStepReader(self._server)
        self._days: DayReader | None = None
        if config.scheduler == "kubernetes" and self._server is not None:
            self._days = DayReader(self._server, config.kubernetes)

    def books(self, now: float) -> Books:
        """Return the books of the window that ends now, in Unix seconds.

        Raises
        ------
        SourceError
            If the scheduler cannot be asked; what Prometheus does not answer besides is missing in
            the books.
        """
        config = self._config
        window = Window(now - config.window_days * _DAY, now)
        jobs = self._jobs(window, Window(now - config.lemons.history_days * _DAY, now))
        seen, signals = NOTHING_OBSERVED, NO_SIGNALS
        if self._server is not None and self._steps is not None:
            ends = [
                row.end
                for row in jobs.rows
                if row.end is not None
                and row.end > window.start
                and row.state not in _WITHOUT_CAUSE
            ]
            seen, signals = observed(self._server, ends), read_signals(self._server, window)
            steps = self._steps.read(
                (
                    (row.job_id, row.start)
                    for row in jobs.rows
                    if row.start is not None and row.start > window.start and row.gpus
                ),
                now,
            )
            seen = seen._replace(
                first_steps=steps.by_start, missing=(*seen.missing, *steps.missing)
            )
        return books_of(jobs, seen, signals, window, config)

    def _jobs(self, window: Window, history: Window) -> Jobs:
        if self._days is not None:
            kubernetes = self._config.kubernetes
            return read_kubernetes(self._days, kubernetes, window, min(window, history))
        return read_slurm(self._config.slurm, window, min(window, history))
