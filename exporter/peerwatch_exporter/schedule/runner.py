"""The fixed clock: once a second it runs the collectors that are due and publishes a snapshot.

Scrapes are answered from snapshots and never sample: a scrape's timestamp is its start, so values
read while a slow answer is under way would spoil every rate over a second.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog.self_metrics import USE_SECONDS
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.schedule.fast_aggregator import FastAggregator
from peerwatch_exporter.schedule.rates import LONGEST_STEP_SECONDS
from peerwatch_exporter.schedule.rolling_mean import RollingMean
from peerwatch_exporter.schedule.scheduled_collector import latest_results, schedule_collectors
from peerwatch_exporter.schedule.self_report import (
    CollectorFamilies,
    exporter_families,
    with_series_count,
)
from peerwatch_exporter.schedule.ticker import Ticker
from peerwatch_exporter.schedule.worker import ThreadWorker
from peerwatch_exporter.snapshot import FastSnapshot, Snapshot, merge
from peerwatch_exporter.sources.host.rarely import Rarely

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.schedule.scheduled_collector import ScheduledCollector
    from peerwatch_exporter.schedule.worker import Worker
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.own_processes import ProcessUse

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """How one collector does, for a person."""

    name: str
    summary: str
    interval_seconds: float
    success: bool
    error: str | None
    duration_seconds: float
    stuck_seconds: float
    series: int


class Runner:
    """Takes the snapshots; everybody may read the newest one.

    Parameters
    ----------
    workers
        One per collector; the runner closes them when it stops.
    sources
        For its clocks and the exporter's own processes.
    deadline_seconds
        After a tick the workers are waited for no longer than this.
    version
        The exporter's version.
    max_series
        Series one collector may publish.
    history_seconds
        For how long the fast endpoint's values are kept; 0 keeps the newest only.
    longest_step_seconds
        Between two snapshots; a rise over more than this has no rate on the fast endpoint.
    mean_seconds
        What swings with the steps of a job is on the full endpoint as the mean of so long.

    Attributes
    ----------
    monotonic
        The clock for the age of a snapshot.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        sources: Sources,
        *,
        deadline_seconds: float,
        version: str,
        max_series: int = 5000,
        history_seconds: float = 0,
        longest_step_seconds: float = LONGEST_STEP_SECONDS,
        mean_seconds: float = 1,
    ) -> None:
        self.monotonic = sources.monotonic
        self._clock = sources.clock
        self._processes = sources.own_processes
        self._use: Rarely[Sequence[ProcessUse]] = Rarely(USE_SECONDS, sources.monotonic)
        self._reloads = sources.reloads
        self._deadline_seconds = deadline_seconds
        self._version = version
        self.history_seconds = history_seconds
        self._scheduled = schedule_collectors(workers, max_series)
        self._fast = FastAggregator(longest_step_seconds=longest_step_seconds)
        self._rolling_mean = RollingMean(mean_seconds)
        self._collector_families = CollectorFamilies()
        self._lock = threading.Lock()
        self._newest: Snapshot | None = None
        self._first = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ticker: Ticker | None = None

    def follow(
        self,
        workers: Sequence[Worker],
        *,
        deadline_seconds: float,
        max_series: int,
        history_seconds: float,
        mean_seconds: float,
    ) -> None:
        """Go on with other settings from the next snapshot on.

        Parameters
        ----------
        workers
            Those that run from now on; what those gave that also ran before stays.
        deadline_seconds, max_series, history_seconds, mean_seconds
            As in the constructor.
        """
        with self._lock:
            before = {scheduled.worker: scheduled for scheduled in self._scheduled}
            self._scheduled = tuple(
                before.get(scheduled.worker, scheduled)
                for scheduled in schedule_collectors(workers, max_series)
            )
            for scheduled in self._scheduled:
                scheduled.limit(max_series)
            self._deadline_seconds = deadline_seconds
            self.history_seconds = history_seconds
            self._rolling_mean.cover(mean_seconds)
        for worker in before.keys() - set(workers):
            worker.close()

    def start(self) -> None:
        """Take a first snapshot at once and then one every second, in a thread of its own."""
        self._ticker = Ticker(self.monotonic(), self._clock())
        self._thread = threading.Thread(target=self._run, args=(self._ticker,), name="clock")
        self._thread.daemon = True
        self._thread.start()

    def stop(self) -> None:
        """Take no more snapshots and close the workers; waits for the tick under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for scheduled in self._scheduled:
            scheduled.worker.close()

    def tick(self, *, everybody: bool = False) -> Snapshot:
        """Take one snapshot now.

        Parameters
        ----------
        everybody
            Run every collector, also those that are not due.
        """
        with self._lock:
            time, started = self._clock(), self.monotonic()
            number = 1 if self._newest is None else self._newest.number + 1
            asked = [
                scheduled
                for scheduled in self._scheduled
                if scheduled.request(number, always=everybody)
            ]
            # Those of this process run in the order they were asked: who waits for the last one
            # is woken once. Those of others take their time meanwhile.
            waiting = asked[::-1]
            waiting.sort(key=_is_elsewhere)
            for scheduled in waiting:
                scheduled.take(number, started, started + self._deadline_seconds)
            self._newest = self._snapshot(number, time, started)
            self._first.set()
            return self._newest

    def snapshot(self, timeout: float) -> Snapshot | None:
        """Return the newest snapshot; before the first one, wait ``timeout`` seconds at most."""
        if self._newest is None:
            self._first.wait(timeout)
        return self._newest

    def own(self) -> tuple[Family, ...]:
        """Return what the exporter says about itself before the first snapshot."""
        return with_series_count(
            exporter_families(self._version, None, 0, self._processes.use(), self._reloads)
        )

    @property
    def names(self) -> list[str]:
        """The names of the collectors that run."""
        return [scheduled.worker.name for scheduled in self._scheduled]

    def stuck(self) -> list[str]:
        """Return the names of collectors whose last run has not returned in time."""
        return [
            scheduled.worker.name for scheduled in self._scheduled if scheduled.worker.is_stuck()
        ]

    def status(self) -> tuple[CollectorStatus, ...]:
        """Return how each collector did; those that never ran have not succeeded."""
        known = registrations()
        return tuple(
            CollectorStatus(
                scheduled.worker.name,
                known[scheduled.worker.name].summary if scheduled.worker.name in known else "",
                scheduled.worker.interval_seconds,
                latest is not None and latest.report.success,
                None if latest is None else latest.error,
                0.0 if latest is None else latest.report.duration,
                0.0 if latest is None else latest.stuck_seconds,
                0 if latest is None else latest.series,
            )
            for scheduled in self._scheduled
            for latest in (scheduled.latest,)
        )

    def _run(self, ticker: Ticker) -> None:
        while True:
            try:
                self.tick()
            except Exception:
                # The snapshot grows old and says so; the next tick may work again.
                _LOG.exception("snapshot failed")
            while not ticker.due(self.monotonic()):
                if self._stop.wait(ticker.wait_seconds(self.monotonic())):
                    return

    def _snapshot(self, number: int, time: float, started: float) -> Snapshot:
        results = latest_results(self._scheduled)
        missed = 0 if self._ticker is None else self._ticker.missed
        use = self._use(self._processes.use)
        own = exporter_families(self._version, time, missed, use, self._reloads)
        own += self._collector_families(results)
        collected = merge(family for result in results for family in result.families)
        return Snapshot(
            number=number,
            time=time,
            monotonic=started,
            families=with_series_count([*self._rolling_mean(collected, started), *own]),
            own=with_series_count(own),
            fast_history=self._fast_history(FastSnapshot(time, self._fast.families(results, time))),
        )

    def _fast_history(self, newest: FastSnapshot) -> tuple[FastSnapshot, ...]:
        kept = () if self._newest is None else self._newest.fast_history
        oldest = newest.time - self.history_seconds
        # Timestamps must rise: where the Unix clock was set back, the past is dropped.
        if not kept or kept[-1].time >= newest.time:
            return (newest,)
        return (*(moment for moment in kept if moment.time > oldest), newest)


def _is_elsewhere(scheduled: ScheduledCollector) -> bool:
    return not isinstance(scheduled.worker, ThreadWorker)
