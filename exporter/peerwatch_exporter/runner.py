"""Runs the collectors and puts their families on one page that never fails.

Every collector has a thread of its own for as long as the exporter lives. A scrape asks all of
them to run and waits for each until its deadline; what is not there by then is left out. A call
into a driver that never returns therefore costs one thread and one collector, not the page.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector as RegistryCollector

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, PartialData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.collector import Collector, Registration
    from peerwatch_exporter.config import CollectorsConfig, ExporterConfig
    from peerwatch_exporter.sources import Sources

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """One run of a collector; several scrapes may wait for it."""

    started: float
    done: threading.Event = field(default_factory=threading.Event)
    expired: bool = False
    families: list[Family] = field(default_factory=list)
    error: str | None = None
    success: bool = False
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class _Report:
    """What one collector adds to one page."""

    collector: str
    families: tuple[Family, ...]
    success: bool
    error: str | None
    duration: float
    last_success: float | None
    timeouts: int
    stuck_seconds: float


class Worker:
    """Runs one collector in its own thread, one run at a time.

    Parameters
    ----------
    name
        The collector's name.
    make
        Makes the collector; called in the worker's thread, where it may hang like any other call.
    deadline_seconds
        After this long a run is left out of the page.
    clock, monotonic
        Unix time, and seconds for durations.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Collector],
        *,
        deadline_seconds: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.name = name
        self._make = make
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[_Run] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._collector: Collector | None = None
        self._run: _Run | None = None
        self._timeouts = 0
        self._last_success: float | None = None
        self._logged: str | None = None

    def request(self) -> _Run:
        """Start a run, or return the one that has not returned yet."""
        with self._lock:
            if self._thread is None:
                # A daemon: a call that never returns must not keep the exporter from ending.
                self._thread = threading.Thread(
                    target=self._work, name=f"collector-{self.name}", daemon=True
                )
                self._thread.start()
            if self._run is None or self._run.done.is_set():
                self._run = _Run(self._monotonic())
                self._requests.put(self._run)
            return self._run

    def report(self, run: _Run) -> _Report:
        """Wait for the run until its deadline and say what came of it."""
        waited = self._monotonic() - run.started
        run.done.wait(max(0.0, self._deadline_seconds - waited))
        with self._lock:
            stuck = not run.done.is_set()
            elapsed = self._monotonic() - run.started
            if stuck and not run.expired:
                run.expired = True
                self._timeouts += 1
                self._log("deadline_exceeded", f"not done after {self._deadline_seconds} s")
            return _Report(
                collector=self.name,
                families=() if run.expired else tuple(run.families),
                success=run.success and not run.expired,
                error="deadline_exceeded" if run.expired else run.error,
                duration=elapsed if stuck else run.duration,
                last_success=self._last_success,
                timeouts=self._timeouts,
                stuck_seconds=elapsed if stuck else 0.0,
            )

    def is_stuck(self) -> bool:
        """Return whether a run has passed its deadline and not returned."""
        with self._lock:
            return self._run is not None and self._run.expired and not self._run.done.is_set()

    def _work(self) -> None:
        while True:
            run = self._requests.get()
            error = self._execute(run)
            with self._lock:
                run.duration = self._monotonic() - run.started
                if not run.expired:
                    if run.success:
                        self._last_success = self._clock()
                    self._log(run.error, "" if error is None else str(error))
                run.done.set()

    def _execute(self, run: _Run) -> Exception | None:
        try:
            if self._collector is None:
                self._collector = self._make()
            # One by one: what was yielded before PartialData stays.
            for item in self._collector.collect():
                run.families.append(item)
        except NoData as error:
            _LOG.debug("collector has no data collector=%s detail=%r", self.name, str(error))
            run.families.clear()
        except PartialData as error:
            run.error = error.error_class or error_class(error.__cause__ or error)
            run.success = True
            return error
        except Exception as error:
            run.families.clear()
            run.error = error_class(error)
            return error
        run.success = True
        return None

    def _log(self, error: str | None, detail: str) -> None:
        """Log a change of what is wrong, not every scrape that finds it so."""
        if error == self._logged:
            return
        self._logged = error
        if error is None:
            _LOG.info("collector recovered collector=%s", self.name)
        else:
            _LOG.warning(
                "collector failed collector=%s error=%s detail=%r", self.name, error, detail
            )


def error_class(error: BaseException) -> str:
    """Return the short word that names an error on the page."""
    named = getattr(error, "error_class", None)
    if isinstance(named, str):
        return named
    if isinstance(error, PermissionError):
        return "permission_denied"
    if isinstance(error, OSError):
        return "os_error"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(error).__name__).lower().lstrip("_")


class Runner(RegistryCollector):
    """All enabled collectors, as one collector of a prometheus_client registry.

    Parameters
    ----------
    collectors
        For each collector's name, how it is made.
    sources
        For its clocks.
    deadline_seconds
        For each collector.
    version
        The exporter's version.
    """

    def __init__(
        self,
        collectors: Mapping[str, Callable[[], Collector]],
        sources: Sources,
        *,
        deadline_seconds: float,
        version: str,
    ) -> None:
        self._version = version
        self._workers = [
            Worker(
                name,
                make,
                deadline_seconds=deadline_seconds,
                clock=sources.clock,
                monotonic=sources.monotonic,
            )
            for name, make in sorted(collectors.items())
        ]

    def describe(self) -> Iterable[Family]:
        """Return nothing, so that registering does not already run the collectors."""
        return []

    def collect(self) -> Iterable[Family]:
        """Run all collectors at once; return what they have by their deadlines."""
        runs = [(worker, worker.request()) for worker in self._workers]
        reports = [worker.report(run) for worker, run in runs]
        families = _merge(item for report in reports for item in report.families)
        families += _self_metrics(reports, self._version)
        series = family("exporter_series")
        series.add_metric([], 1 + sum(len(item.samples) for item in families))
        return [*families, series]

    @property
    def names(self) -> list[str]:
        """The names of the collectors that run."""
        return [worker.name for worker in self._workers]

    def stuck(self) -> list[str]:
        """Return the names of collectors whose last call has not returned in time."""
        return [worker.name for worker in self._workers if worker.is_stuck()]


def enabled_collectors(
    config: ExporterConfig, sources: Sources, registered: Mapping[str, Registration]
) -> dict[str, Callable[[], Collector]]:
    """Return how to make each collector that the configuration lets run."""

    def maker(registration: Registration) -> Callable[[], Collector]:
        return lambda: registration.factory(config, sources)

    return {
        name: maker(registration)
        for name, registration in registered.items()
        if _is_enabled(registration, config.collectors)
    }


def _is_enabled(registration: Registration, choice: CollectorsConfig) -> bool:
    if registration.name in choice.disabled:
        return False
    if choice.enabled is None:
        return registration.default_enabled
    return registration.name in choice.enabled


def _merge(families: Iterable[Family]) -> list[Family]:
    """Join families of the same name, for a page may declare each name once; drop empty ones."""
    merged: dict[str, Family] = {}
    joined: dict[str, Family] = {}
    for item in families:
        if not item.samples:
            continue
        first = merged.get(item.name)
        if first is None:
            merged[item.name] = item
            continue
        if item.name not in joined:
            # Another scrape may be rendering the first one: join in a new family.
            joined[item.name] = merged[item.name] = _copy(first)
        target = joined[item.name]
        seen = {(sample.name, *sorted(sample.labels.items())) for sample in target.samples}
        target.samples += [
            sample
            for sample in item.samples
            if (sample.name, *sorted(sample.labels.items())) not in seen
        ]
    return list(merged.values())


def _copy(item: Family) -> Family:
    copied = type(item)(item.name, item.documentation)
    copied.samples = list(item.samples)
    return copied


def _self_metrics(reports: Iterable[_Report], version: str) -> list[Family]:
    build = family("exporter_build_info")
    build.add_metric([version], 1)
    success = family("exporter_collector_success")
    duration = family("exporter_collector_duration_seconds")
    last_success = family("exporter_collector_last_success_timestamp_seconds")
    timeouts = family("exporter_collector_timeouts_total")
    stuck = family("exporter_collector_stuck_seconds")
    errors = family("exporter_collector_error_info")
    for report in reports:
        label = [report.collector]
        success.add_metric(label, int(report.success))
        duration.add_metric(label, report.duration)
        timeouts.add_metric(label, report.timeouts)
        stuck.add_metric(label, report.stuck_seconds)
        if report.last_success is not None:
            last_success.add_metric(label, report.last_success)
        if report.error is not None:
            errors.add_metric([report.collector, report.error], 1)
    families = [build, success, duration, last_success, timeouts, stuck, errors]
    return [item for item in families if item.samples]
