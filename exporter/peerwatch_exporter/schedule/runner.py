"""The fixed clock: once a second it asks the collectors that are due and publishes a snapshot.

Pages are served from snapshots and never sample while they are answered: a scrape's timestamp is
its start, so values read while a slow answer is under way would spoil every rate over a second.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peerwatch_exporter.collector import registrations
from peerwatch_exporter.schedule.fast import FastPage
from peerwatch_exporter.schedule.rates import LONGEST_STEP_SECONDS
from peerwatch_exporter.schedule.rolling_mean import Means
from peerwatch_exporter.schedule.scheduled_collector import held, seats
from peerwatch_exporter.schedule.self_report import (
    collector_families,
    exporter_families,
    with_series_count,
)
from peerwatch_exporter.schedule.serial_executor import Lane
from peerwatch_exporter.schedule.ticker import Beat
from peerwatch_exporter.schedule.worker import ThreadWorker
from peerwatch_exporter.snapshot import Moment, Snapshot, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.collector import Collector, Registration
    from peerwatch_exporter.schedule.scheduled_collector import Seat
    from peerwatch_exporter.schedule.worker import Worker
    from peerwatch_exporter.settings.config import CollectorsConfig, ExporterConfig
    from peerwatch_exporter.sources import Sources

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


class WorkerSource(Protocol):
    """Runs collectors in another process."""

    def workers(self, registrations: Sequence[Registration]) -> Sequence[Worker]:
        """Return a worker for each of these collectors."""


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
        For how long the fast page's values are kept; 0 keeps the newest only.
    longest_step_seconds
        Between two snapshots; a rise over more than this has no rate on the fast page.
    mean_seconds
        What swings with the steps of a job is on the full page as the mean of so long.

    Attributes
    ----------
    monotonic
        The clock that tells how old a snapshot is.
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
        self._deadline_seconds = deadline_seconds
        self._version = version
        self.history_seconds = history_seconds
        self._seats = seats(workers, max_series)
        self._fast = FastPage(longest_step_seconds=longest_step_seconds)
        self._means = Means(mean_seconds)
        self._lock = threading.Lock()
        self._newest: Snapshot | None = None
        self._first = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._beat: Beat | None = None

    def start(self) -> None:
        """Take a first snapshot at once and then one every second, in a thread of its own."""
        self._beat = Beat(self.monotonic(), self._clock())
        self._thread = threading.Thread(target=self._run, args=(self._beat,), name="clock")
        self._thread.daemon = True
        self._thread.start()

    def stop(self) -> None:
        """Take no more snapshots and close the workers; waits for the tick under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for seat in self._seats:
            seat.worker.close()

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
            asked = [seat for seat in self._seats if seat.request(number, always=everybody)]
            # Those of this process run in the order they were asked: who waits for the last one
            # is woken once. Those of others take their time meanwhile.
            waiting = asked[::-1]
            waiting.sort(key=_is_elsewhere)
            for seat in waiting:
                seat.take(number, started, started + self._deadline_seconds)
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
        return with_series_count(exporter_families(self._version, None, 0, self._processes.use()))

    @property
    def names(self) -> list[str]:
        """The names of the collectors that run."""
        return [seat.worker.name for seat in self._seats]

    def stuck(self) -> list[str]:
        """Return the names of collectors whose last run has not returned in time."""
        return [seat.worker.name for seat in self._seats if seat.worker.is_stuck()]

    def status(self) -> tuple[CollectorStatus, ...]:
        """Return how each collector did; those that never ran have not succeeded."""
        known = registrations()
        return tuple(
            CollectorStatus(
                seat.worker.name,
                known[seat.worker.name].summary if seat.worker.name in known else "",
                seat.worker.interval_seconds,
                item is not None and item.report.success,
                None if item is None else item.error,
                0.0 if item is None else item.report.duration,
                0.0 if item is None else item.stuck_seconds,
                0 if item is None else item.series,
            )
            for seat in self._seats
            for item in (seat.held,)
        )

    def _run(self, beat: Beat) -> None:
        while True:
            try:
                self.tick()
            except Exception:
                # The page grows old and says so; the next tick may work again.
                _LOG.exception("snapshot failed")
            while not beat.due(self.monotonic()):
                if self._stop.wait(beat.wait_seconds(self.monotonic())):
                    return

    def _snapshot(self, number: int, time: float, started: float) -> Snapshot:
        reports = held(self._seats)
        missed = 0 if self._beat is None else self._beat.missed
        own = exporter_families(self._version, time, missed, self._processes.use())
        own += collector_families(reports)
        collected = merge(item for one in reports for item in one.families)
        return Snapshot(
            number=number,
            time=time,
            monotonic=started,
            families=with_series_count([*self._means(collected, started), *own]),
            own=with_series_count(own),
            moments=self._moments(Moment(time, self._fast.families(reports, time))),
        )

    def _moments(self, newest: Moment) -> tuple[Moment, ...]:
        kept = () if self._newest is None else self._newest.moments
        oldest = newest.time - self.history_seconds
        # Timestamps must rise: where the Unix clock was set back, the past is dropped.
        if not kept or kept[-1].time >= newest.time:
            return (newest,)
        return (*(moment for moment in kept if moment.time > oldest), newest)


def _is_elsewhere(seat: Seat) -> bool:
    return not isinstance(seat.worker, ThreadWorker)


def make_workers(
    config: ExporterConfig,
    sources: Sources,
    registered: Mapping[str, Registration],
    driver: WorkerSource | None,
) -> list[Worker]:
    """Return a worker for every collector that the configuration lets run.

    Parameters
    ----------
    config
        The settings, which also name the collectors that run.
    sources
        Where collectors read from.
    registered
        The collectors there are.
    driver
        Runs the collectors that call the driver; ``None`` runs them in this process too, where a
        call that never returns keeps its thread for good.
    """

    def maker(registration: Registration) -> Callable[[], Collector]:
        return lambda: registration.factory(config, sources)

    chosen = [registered[name] for name in enabled_collectors(config, registered)]
    elsewhere = [item for item in chosen if item.place == "driver" and driver is not None]
    lane = Lane("collectors")
    workers: list[Worker] = [
        ThreadWorker(
            item.name,
            maker(item),
            interval_seconds=item.interval_seconds,
            clock=sources.clock,
            monotonic=sources.monotonic,
            lane=lane,
        )
        for item in chosen
        if item not in elsewhere
    ]
    if driver is not None and elsewhere:
        workers += driver.workers(elsewhere)
    return workers


def enabled_collectors(
    config: ExporterConfig, registered: Mapping[str, Registration]
) -> tuple[str, ...]:
    """Return the names of the collectors that the configuration lets run."""
    return tuple(
        name
        for name, item in sorted(registered.items())
        if _is_enabled(item, config.collectors) and item.wanted(config)
    )


def _is_enabled(registration: Registration, choice: CollectorsConfig) -> bool:
    if registration.name in choice.disabled:
        return False
    if choice.enabled is None:
        return registration.default_enabled
    return registration.name in choice.enabled
