"""Runs a detector: what is due is read in threads and evaluated in this one, until it is to stop.

Discovery, the view of the other members, the reads of the jobs, of their own evidence and of how
their nodes are set up each have threads of their own, so that one that hangs stops nothing else.
Jobs are evaluated one after the other, each in as many threads as its arithmetic is worth
(``threads``); endpoints are served from the last snapshot meanwhile.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.models.store import Bundle
from peerwatch_detector.service.change_log import DISCOVERY
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.discovery import Found
from peerwatch_detector.service.members import REFRESHES_PER_CYCLE, MembershipView
from peerwatch_detector.service.schedule import Schedule, fraction
from peerwatch_detector.service.turn import Reading
from peerwatch_detector.service.workers import Inbox, Outcome, Workers, attempt

T = TypeVar("T")

logger = logging.getLogger(__name__)

# How long the loop waits at most: so old may the published lateness be, so long may stopping take.
_LONGEST_WAIT = 0.5


class Loop:
    """Lets a detector evaluate its jobs, each at its time.

    Parameters
    ----------
    detector
        What evaluates.
    clock
        Seconds that never jump.
    prepare
        Called once, before the first job is read.
    """

    def __init__(
        self,
        detector: Detector,
        clock: Callable[[], float] = time.monotonic,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        config = detector.config
        self.detector = detector
        self._prepare = prepare
        self.schedule = Schedule(config.cycle_seconds, config.scheduling.reading_threads)
        self._clock = clock
        self._read: deque[tuple[str, Outcome[Reading]]] = deque()
        self._inbox = Inbox()
        self._readers = Workers(config.scheduling.reading_threads, "read", self._inbox)
        self._periodic: list[_PeriodicTask[Found] | _PeriodicTask[MembershipView]] = [
            _PeriodicTask(
                detector.find, self._discovered, config.cycle_seconds, "discover", self._inbox
            )
        ]
        if config.replicas.enabled:
            pause = config.cycle_seconds / REFRESHES_PER_CYCLE
            self._periodic.append(
                _PeriodicTask(
                    detector.find_members, self._found_members, pause, "members", self._inbox
                )
            )

        self._turns = tuple(_turns(detector, self._inbox))

    def follow(self, config: DetectorConfig, bundle: Bundle) -> None:
        """Let the detector go on with other settings, in the loop's thread; returns at once."""
        self._inbox.put(partial(self.detector.follow, config, bundle))

    def run(self, stop: threading.Event) -> None:
        """Go on until ``stop`` is set; no error ends the loop."""
        try:
            while not stop.is_set():
                try:
                    self._step()
                except Exception:
                    # A bug must not stop the detector: the alert on stale jobs fires.
                    logger.exception("loop_failed")
                    stop.wait(_LONGEST_WAIT)
        finally:
            for workers in (self._readers, *(task.workers for task in self._periodic)):
                workers.stop()
            for turns in self._turns:
                turns.stop()

    def _step(self) -> None:
        """Start what is due, evaluate a job that has been read, or wait for something to do."""
        now = self._clock()
        for task in self._periodic:
            task.start_if_due(now)
        for turns in self._turns:
            turns.start_due(now)
        while (job_id := self.schedule.begin(now)) is not None:
            self._submit(job_id)
        if self._read:
            self._detect(*self._read.popleft())
        self._inbox.take(0.0 if self._read else self._seconds_until_due())
        self.detector.publish(self.schedule.backlog(self._clock()))

    def _seconds_until_due(self) -> float:
        now = self._clock()
        waits = [task.seconds_until_due(now) for task in self._periodic]
        waits += [turns.seconds_until_due(now) for turns in self._turns]
        return max(0.0, min(_LONGEST_WAIT, self.schedule.seconds_until_due(now), *waits))

    def _discovered(self, outcome: Outcome[Found]) -> None:
        recovers = outcome.error is None and self.detector.failures.reasons.get(DISCOVERY)
        self.detector.discovered(outcome)
        self._follow_share()
        if recovers:
            self.schedule.retry(self._clock())

    def _found_members(self, outcome: Outcome[MembershipView]) -> None:
        self.detector.found_members(outcome)
        self._follow_share()

    def _follow_share(self) -> None:
        share = self.detector.share()
        if share and self._prepare is not None:
            self._prepare()
            self._prepare = None
        self.schedule.follow(share, self._clock())

    def _submit(self, job_id: str) -> None:
        """Let a thread read a job; one about which that cannot be said has failed, too."""
        work = attempt(partial(self.detector.reading, job_id))
        if work.result is None:
            self._has_read(job_id, Outcome(None, work.error, work.seconds))
        else:
            self._readers.submit(work.result, partial(self._has_read, job_id))

    def _has_read(self, job_id: str, outcome: Outcome[Reading]) -> None:
        self.schedule.has_read(job_id, outcome.seconds)
        self._read.append((job_id, outcome))

    def _detect(self, job_id: str, outcome: Outcome[Reading]) -> None:
        began = self._clock()
        good = self.detector.detect(job_id, outcome)
        now = self._clock()
        if self.detector.has_more(job_id):
            self.schedule.read_on(job_id, now - began)
            self._submit(job_id)
            return
        self.schedule.end(job_id, now - began, now, failed=not good)


class _JobTurns(Generic[T]):
    """Asks something about every job each so often, never twice at a time.

    Parameters
    ----------
    jobs
        Returns the jobs that there are.
    asking
        Returns the work for a thread about one of them.
    take
        What the loop does with what came of it.
    seconds
        Time from one asking to the next.
    workers
        The threads.
    urgent
        Whether a job must not wait for its turn; None if all can.
    """

    def __init__(
        self,
        jobs: Callable[[], Collection[str]],
        asking: Callable[[str], Callable[[], T]],
        take: Callable[[str, Outcome[T]], None],
        seconds: float,
        workers: Workers,
        urgent: Callable[[str], bool] | None = None,
    ) -> None:
        self._jobs = jobs
        self._asking = asking
        self._take = take
        self._seconds = seconds
        self._due: dict[str, float] = {}
        self._asked: set[str] = set()
        self._workers = workers
        self._urgent = urgent

    def start_due(self, now: float) -> None:
        """Ask the jobs that are due: a new one at once, then all spread over the interval."""
        jobs = self._jobs()
        self._due = {job_id: due for job_id, due in self._due.items() if job_id in jobs}
        for job_id in jobs:
            waits = now < self._due.get(job_id, now)
            if job_id in self._asked or (waits and not self._is_urgent(job_id)):
                continue
            # On a grid of its own, so that a late start does not move the next one.
            phase = fraction(job_id) * self._seconds
            past = math.floor((now - phase) / self._seconds)
            self._due[job_id] = phase + (past + 1) * self._seconds
            self._asked.add(job_id)
            work = attempt(partial(self._asking, job_id))
            if work.result is None:
                self._answered(job_id, Outcome(None, work.error, work.seconds))
            else:
                self._workers.submit(work.result, partial(self._answered, job_id))

    def _is_urgent(self, job_id: str) -> bool:
        return self._urgent is not None and job_id in self._jobs() and self._urgent(job_id)

    def seconds_until_due(self, now: float) -> float:
        waits = [
            0.0 if self._is_urgent(job_id) else due - now
            for job_id, due in self._due.items()
            if job_id not in self._asked
        ]
        return min(waits, default=math.inf)

    def stop(self) -> None:
        self._workers.stop()

    def _answered(self, job_id: str, outcome: Outcome[T]) -> None:
        self._asked.discard(job_id)
        if job_id in self._jobs():
            self._take(job_id, outcome)


def _turns(detector: Detector, inbox: Inbox) -> Iterator[_JobTurns[Any]]:
    """Yield what is asked about every job beside its samples."""
    config = detector.config.diagnosis

    def jobs() -> Collection[str]:
        return detector.memories

    if detector.instants is not None:
        workers = Workers(config.reading_threads, "evidence", inbox)
        yield _JobTurns(jobs, detector.asking, detector.diagnose, config.interval_seconds, workers)
    if (roots := detector.roots) is not None:
        memories = detector.memories
        yield _JobTurns(
            jobs,
            lambda job_id: roots.asking(memories[job_id]),
            lambda job_id, found: roots.take(memories.get(job_id), found, detector.failures),
            config.root_interval_seconds,
            Workers(1, "root", inbox),
            urgent=lambda job_id: memories[job_id].wants_root,
        )
    if (configurations := detector.configurations) is not None:
        yield _JobTurns(
            jobs,
            configurations.asking,
            partial(configurations.take, log=detector.failures),
            config.config_interval_seconds,
            Workers(1, "configuration", inbox),
        )


class _PeriodicTask(Generic[T]):
    """Work done every so often in a thread of its own, never twice at a time.

    Parameters
    ----------
    work
        What the thread does.
    then
        What the loop does with what came of it.
    seconds
        Time from one start to the next.
    name
        Of the thread.
    inbox
        The loop's.
    """

    def __init__(
        self,
        work: Callable[[], T],
        then: Callable[[Outcome[T]], None],
        seconds: float,
        name: str,
        inbox: Inbox,
    ) -> None:
        self.workers = Workers(1, name, inbox)
        self._work = work
        self._then = then
        self._seconds = seconds
        self._due = -math.inf
        self._working = False

    def start_if_due(self, now: float) -> None:
        if not self._working and now >= self._due:
            self._working, self._due = True, now + self._seconds
            self.workers.submit(self._work, self._ended)

    def seconds_until_due(self, now: float) -> float:
        return math.inf if self._working else self._due - now

    def _ended(self, outcome: Outcome[T]) -> None:
        self._working = False
        self._then(outcome)
