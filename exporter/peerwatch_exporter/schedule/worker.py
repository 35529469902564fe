"""Runs one collector, one run at a time, so that a call that never returns costs only itself.

A worker is asked to start a run and, later, what came of it; neither ever blocks for longer than
the caller allows. ``ThreadWorker`` is the one for collectors of this process; the driver process
has workers of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from peerwatch_exporter.errors import NoData, PartialData, SourceMissing, error_class
from peerwatch_exporter.schedule.serial_executor import PATIENCE_SECONDS, SerialExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.collector import Collector

_LOG = logging.getLogger(__name__)
# A run that is late and then comes is only counted; one as late as this is worth a log line.
# Chosen: the first runs on a busy machine take a second or two.
LATE_SECONDS = 5.0
_NOBODY: Mapping[str, float] = {}


class Report(NamedTuple):
    """What came of a collector's newest run.

    Parameters
    ----------
    collector
        The collector's name.
    families
        What it published; nothing if the run failed or passed its deadline.
    success
        Whether it succeeded; true as well where the node has no such hardware.
    error
        Short word for what is wrong, also of a success with something missing; else ``None``.
    duration
        Seconds the run took; so far, if it has not returned.
    last_success
        When a run last succeeded (Unix time); ``None`` before the first.
    timeouts
        Runs that passed their deadline since the start.
    stuck_seconds
        By GPU index, or ``""`` for the collector as a whole: for how long a run past its deadline
        has not returned. Empty, or 0, if none is stuck.
    started
        When the run began to read (monotonic seconds), for rates; ``None`` if not known.
    """

    collector: str
    families: tuple[Family, ...]
    success: bool
    error: str | None
    duration: float
    last_success: float | None
    timeouts: int
    stuck_seconds: Mapping[str, float]
    started: float | None = None


class Worker(Protocol):
    """Runs one collector somewhere."""

    @property
    def name(self) -> str:
        """The collector's name."""

    @property
    def interval_seconds(self) -> float:
        """How often it is to run."""

    def request(self) -> None:
        """Start a run, or do nothing if one is under way; returns at once."""

    def report(self, deadline: float) -> Report:
        """Wait for the run until the monotonic time ``deadline`` at most; say what came of it."""

    def is_stuck(self) -> bool:
        """Return whether a run has passed its deadline and not returned."""

    def close(self) -> None:
        """Start no further runs and free what the worker holds; returns at once."""


@dataclass(slots=True)
class _Run:
    """One run of a collector."""

    requested: float
    began: float | None = None
    returned: bool = False
    expired: bool = False
    families: list[Family] = field(default_factory=list)
    error: str | None = None
    success: bool = False
    duration: float = 0.0
    _gate: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # In place of an event, which is some ten objects of Python's for each run.
        self._gate.acquire()

    def end(self) -> None:
        """Say that it has returned."""
        self.returned = True
        self._gate.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it has returned, so long at most; return whether it has."""
        if not self.returned and self._gate.acquire(timeout=seconds):
            self._gate.release()
        return self.returned


class ThreadWorker:
    """Runs one collector in a thread of this process that is not the caller's.

    Parameters
    ----------
    name
        The collector's name.
    make
        Makes the collector; called in the worker's thread, where it may hang like any other call.
    interval_seconds
        How often it is to run.
    clock, monotonic
        Unix time, and seconds for durations.
    executor
        Where it runs, with others; unset: by itself.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Collector],
        *,
        interval_seconds: float = 1.0,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        executor: SerialExecutor | None = None,
    ) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self._make = make
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._executor = executor or SerialExecutor(f"collector-{name}")
        self._executor.join()
        self._collector: Collector | None = None
        self._change: Callable[[Collector], Collector] | None = None
        self._run: _Run | None = None
        self._timeouts = 0
        self._last_success: float | None = None
        self._logged: str | None = None
        self._closed = False

    def request(self) -> None:
        """Start a run, or do nothing if one is under way."""
        with self._lock:
            if self._closed or (self._run is not None and not self._run.returned):
                return
            run = self._run = _Run(self._monotonic())
        self._executor.submit(lambda: self._work(run))

    def change(
        self, make: Callable[[], Collector], change: Callable[[Collector], Collector]
    ) -> None:
        """Have the collector of the next run follow other settings; returns at once.

        Parameters
        ----------
        make
            Makes it from now on.
        change
            Returns one in the place of that which was made before, or the same, changed.
        """
        with self._lock:
            self._make, self._change = make, change

    def report(self, deadline: float) -> Report:
        """Wait for the run until ``deadline`` and say what came of it."""
        run = self._run
        if run is None:
            return Report(self.name, (), False, "not_run", 0.0, None, self._timeouts, _NOBODY)
        if not run.expired:
            self._wait(run, max(0.0, deadline - self._monotonic()))
        with self._lock:
            stuck = not run.returned
            elapsed = self._monotonic() - run.requested
            if stuck and not run.expired:
                run.expired = True
                self._timeouts += 1
            if stuck and elapsed >= LATE_SECONDS:
                self._log("deadline_exceeded", f"not done after {elapsed:.3g} s")
            return Report(
                collector=self.name,
                families=() if run.expired else tuple(run.families),
                success=run.success and not run.expired,
                error="deadline_exceeded" if run.expired else run.error,
                duration=elapsed if stuck else run.duration,
                last_success=self._last_success,
                timeouts=self._timeouts,
                stuck_seconds={"": elapsed} if stuck else _NOBODY,
                started=run.began,
            )

    def is_stuck(self) -> bool:
        """Return whether a run has passed its deadline and not returned."""
        with self._lock:
            return self._run is not None and self._run.expired and not self._run.returned

    def close(self) -> None:
        """Start no further runs; the thread ends once its last one returns."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._executor.leave()

    def _wait(self, run: _Run, seconds: float) -> None:
        while seconds > 0 and not run.wait(min(seconds, PATIENCE_SECONDS)):
            seconds -= PATIENCE_SECONDS
            # Perhaps it has not begun, because another one does not return.
            self._executor.relieve()

    def _work(self, run: _Run) -> None:
        began = run.began = self._monotonic()
        error = self._execute(run)
        with self._lock:
            run.duration = self._monotonic() - began
            if not run.expired:
                if run.success:
                    self._last_success = self._clock()
                self._log(run.error, "" if error is None else str(error))
            run.end()

    def _execute(self, run: _Run) -> Exception | None:
        try:
            collector = self._collector = self._current()
            # One by one: what was yielded before PartialData stays.
            for item in collector.collect():
                run.families.append(item)
        except NoData as error:
            _LOG.debug("collector has no data collector=%s detail=%r", self.name, str(error))
            run.families.clear()
            if isinstance(error, SourceMissing):
                run.error = error.error_class
                run.success = True
                return error
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

    def _current(self) -> Collector:
        """Return the collector as the settings have it, for one run at a time."""
        with self._lock:
            make, change, self._change = self._make, self._change, None
        if self._collector is None:
            return make()
        return self._collector if change is None else change(self._collector)

    def _log(self, error: str | None, detail: str) -> None:
        """Log a change of what is wrong, not every run that finds it so."""
        if error == self._logged:
            return
        self._logged = error
        if error is None:
            _LOG.info("collector recovered collector=%s", self.name)
        elif error == SourceMissing.error_class:
            # What it may read is a choice, such as the chart's privileges.
            _LOG.info("collector has no source collector=%s detail=%r", self.name, detail)
        else:
            _LOG.warning(
                "collector failed collector=%s error=%s detail=%r", self.name, error, detail
            )
