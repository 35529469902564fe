"""When each collector runs, and the newest result it gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.errors import error_class
from peerwatch_exporter.schedule.ticker import PERIOD_SECONDS
from peerwatch_exporter.schedule.worker import Report
from peerwatch_exporter.snapshot import Distinct, limit_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.schedule.worker import Worker


class LatestResult(NamedTuple):
    """What a collector's newest run gave, kept until the next one.

    Parameters
    ----------
    report
        What the worker said.
    families
        What is published of it: every label set once, and the series within the limit.
    started
        When that run began to read (monotonic seconds).
    dropped
        Series beyond the limit, which were left out.
    """

    report: Report
    families: tuple[Family, ...]
    started: float
    dropped: int

    @property
    def error(self) -> str | None:
        """Short word for what is wrong, if anything is."""
        return self.report.error or ("series_limit" if self.dropped else None)

    @property
    def series(self) -> int:
        """Series the collector publishes."""
        return sum(len(item.rows) for item in self.families)

    @property
    def stuck_seconds(self) -> float:
        """For how long its oldest run has not returned; 0 if none is stuck."""
        return max(self.report.stuck_seconds.values(), default=0.0)


class ScheduledCollector:
    """Decides at which ticks a worker runs, and asks it.

    A collector that runs every 5, 10 or 60 s has its ticks at a point of its own of that time, so
    that they do not all fall together. One that failed is tried again sooner: after 1, 2, 4, ...
    ticks, at its usual interval at most.

    Parameters
    ----------
    worker
        The collector's worker.
    phase
        At ticks whose number leaves this rest when divided by the interval it runs.
    max_series
        Series it may publish.
    """

    def __init__(self, worker: Worker, phase: int, max_series: int) -> None:
        self.worker = worker
        self.latest: LatestResult | None = None
        self._every = interval_ticks(worker)
        self._phase = phase % self._every
        self._max_series = max_series
        self._distinct = Distinct()
        self._passed: tuple[Family, ...] = ()
        self._limited: tuple[tuple[Family, ...], int] = (), 0
        # Everybody runs at the first tick.
        self._next = 0
        self._failures = 0
        self._requested = False
        self._was_stuck = True

    def limit(self, max_series: int) -> None:
        """Let it publish so many series from now on."""
        if max_series != self._max_series:
            self._max_series = max_series
            self._passed, self._limited = (), ((), 0)

    def request(self, tick: int, *, always: bool = False) -> bool:
        """Start a run if one is due at this tick; return whether there is a report to take.

        A stuck worker stays due, and runs at the first tick after it came back.
        """
        # Most are not due in most seconds, and nothing is asked of those.
        if tick < self._next and not always and not self._was_stuck:
            self._requested = False
            return False
        stuck = self.worker.is_stuck()
        self._requested = (always or tick >= self._next) and not stuck
        if self._requested:
            self.worker.request()
        # What was stuck is checked again at every tick, until it is seen not to be.
        return self._requested or stuck or self._was_stuck

    def take(self, tick: int, started: float, deadline: float) -> None:
        """Take the worker's report, waiting until ``deadline`` at most."""
        self.latest = latest = self._result(started, deadline)
        self._was_stuck = latest.stuck_seconds > 0
        if not self._requested:
            return
        if latest.report.success:
            self._failures = 0
            self._next = tick + self._every - (tick - self._phase) % self._every
        else:
            self._next = tick + min(self._every, 2 ** min(self._failures, 10))
            self._failures += 1

    def _result(self, started: float, deadline: float) -> LatestResult:
        try:
            report = self.worker.report(deadline)
            families, dropped = self._within_limit(self._distinct(report.families))
        except Exception as error:
            # A worker must not fail; if one does, the others are still published.
            name = self.worker.name
            report = Report(name, (), False, error_class(error), 0.0, None, 0, {})
            families, dropped = (), 0
        began = started if report.started is None else report.started
        return LatestResult(report, families, began, dropped)

    def _within_limit(self, families: tuple[Family, ...]) -> tuple[tuple[Family, ...], int]:
        # Families are compared as objects: those that did not change need not be counted again.
        if families != self._passed:
            self._passed, self._limited = families, limit_series(families, self._max_series)
        return self._limited


def interval_ticks(worker: Worker) -> int:
    """Return after how many ticks the worker runs again."""
    return max(1, round(worker.interval_seconds / PERIOD_SECONDS))


def schedule_collectors(
    workers: Sequence[Worker], max_series: int
) -> tuple[ScheduledCollector, ...]:
    """Return the workers by name, those of one interval spread evenly over its ticks."""
    ordered = sorted(workers, key=lambda worker: worker.name)
    tiers: Mapping[int, list[Worker]] = {interval_ticks(worker): [] for worker in ordered}
    for worker in ordered:
        tiers[interval_ticks(worker)].append(worker)
    return tuple(
        ScheduledCollector(
            worker, tiers[every].index(worker) * every // len(tiers[every]), max_series
        )
        for worker in ordered
        for every in (interval_ticks(worker),)
    )


def latest_results(collectors: Iterable[ScheduledCollector]) -> list[LatestResult]:
    """Return the newest result of each collector that ran at least once."""
    return [item.latest for item in collectors if item.latest is not None]
