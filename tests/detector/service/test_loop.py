"""The loop on real threads, over a Prometheus in memory of which some jobs cannot be read."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

from detector.diagnosis.fake_diagnosers import VERDICT, FakeInstants, Told
from detector.fakes import START, FakeReader, config_for, healthy, node_names
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading import Grid, Reading, Selection
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.service.loop import Loop

JOBS = 12
PAST = 300


class RunningClock:
    """Unix time that began at ``START + PAST`` when it was made, and runs."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def now(self) -> float:
        return START + PAST + time.monotonic() - self._began

    def __call__(self) -> float:
        return self.now


@dataclass
class HangingReader(FakeReader):
    """Hangs on queries that contain one of the texts, until its deadline or its release."""

    hangs: tuple[str, ...] = ()
    deadline: float = 300.0
    released: threading.Event = field(default_factory=threading.Event)
    at_once: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    hanging: int = 0
    most_hanging: int = 0

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        asked = selections[0].selector
        if asked in self.at_once:
            self.twice.append(asked)
        self.at_once.append(asked)
        try:
            self._hang(asked)
            return super().read(selections, grid, nodes)
        except ReadError as error:
            return [Reading(selection, error, "query") for selection in selections]
        finally:
            self.at_once.remove(asked)

    def instant(self, query: str, at: float | None = None) -> list[Series]:
        self._hang(query)
        return super().instant(query, at)

    def _hang(self, query: str) -> None:
        if not any(text in query for text in self.hangs):
            return
        self.hanging += 1
        self.most_hanging = max(self.most_hanging, self.hanging)
        released = self.released.wait(self.deadline)
        self.hanging -= 1
        if not released:
            raise ReadError("timeout", "Did not answer.")


@dataclass
class Running:
    """A detector that runs in a thread."""

    reader: HangingReader
    detector: Detector
    thread: threading.Thread
    stop: threading.Event

    def evaluated(self) -> dict[str, float]:
        """Return when each job was last evaluated, in seconds since the beginning."""
        times = self.detector.snapshot.last_success
        return {job_id: now - START - PAST for job_id, now in times.items()}


def wait_for(condition: Callable[[], object]) -> None:
    tick = threading.Event()
    for _ in range(9000):
        if condition():
            return
        tick.wait(0.02)
    raise AssertionError("The condition did not come true within 180 s.")


def job(number: int) -> str:
    return f"job-{number:02d}"


@contextmanager
def running(
    config: DetectorConfig | None = None, instants: FakeInstants | None = None
) -> Iterator[Running]:
    config = config or config_for(cycle_seconds=0.5)
    clock = RunningClock()
    reader = HangingReader(clock, config)
    for number in range(JOBS):
        names = tuple(f"{job(number)}-{name}" for name in node_names(4))
        reader.add_job(job(number), {"load": healthy(4, 2 * PAST, number)}, names, START)
    detector = Detector(config, reader, EMPTY, clock, instants=instants, diagnosers=(Told,))
    stop = threading.Event()
    thread = threading.Thread(target=Loop(detector).run, args=(stop,))
    here = Running(reader, detector, thread, stop)
    try:
        yield here
    finally:
        stop.set()
        reader.released.set()
        if thread.ident is not None:
            thread.join(timeout=300)
    assert not thread.is_alive()
    assert [] == reader.twice


def test_all_jobs_are_evaluated_again_and_again() -> None:
    with running() as here:
        here.thread.start()
        wait_for(lambda: len(here.evaluated()) == JOBS)
        first = here.evaluated()
        wait_for(lambda: all(here.evaluated()[name] > first[name] + 1 for name in first))
        snapshot = here.detector.snapshot

    assert JOBS == len(snapshot.detections)
    assert first.keys() == snapshot.backlog.lateness.keys()
    assert {"discover", "read", "detect", "publish"} == snapshot.stages.keys()
    assert all(seconds > 0 for seconds in snapshot.stages.values())


def test_jobs_that_hang_or_raise_stop_no_other() -> None:
    with running() as here:
        hanging = {job(number) for number in (0, 1, 2)}
        here.reader.deadline = 2.0
        here.reader.hangs = tuple(f'job_id="{name}"' for name in hanging)
        here.reader.failures_by_query = {f'job_id="{job(3)}"': ValueError("a bug")}
        good = {job(number) for number in range(4, JOBS)}
        here.thread.start()
        wait_for(lambda: here.evaluated().keys() == good)
        first = here.evaluated()
        wait_for(lambda: all(here.evaluated()[name] > first[name] + 2 for name in good))
        # Half of the four threads.
        assert 2 == here.reader.most_hanging
        failed = {concern[1]: reason for concern, reason in here.detector.failures.reasons.items()}
        assert dict.fromkeys(hanging, "timeout") | {job(3): "ValueError"} == failed

        here.reader.hangs, here.reader.failures_by_query = (), {}
        wait_for(lambda: len(here.evaluated()) == JOBS)


def test_a_discovery_that_hangs_does_not_stop_the_known_jobs() -> None:
    with running() as here:
        here.thread.start()
        wait_for(lambda: len(here.evaluated()) == JOBS)
        here.reader.hangs = ("host_job_info",)
        discovered = here.detector.snapshot.discovered
        first = here.evaluated()
        wait_for(lambda: all(here.evaluated()[name] > first[name] + 2 for name in first))
        # One that had begun may have ended.
        assert here.detector.snapshot.discovered is not None
        assert discovered is not None
        assert here.detector.snapshot.discovered <= discovered + 1


def test_a_job_that_fails_while_nothing_can_be_discovered_is_read_soon_after() -> None:
    with running() as here:
        here.thread.start()
        wait_for(lambda: len(here.evaluated()) == JOBS)
        here.reader.failure = "unreachable"
        wait_for(lambda: len(here.detector.failures.reasons) == JOBS + 1)
        back = here.detector.clock() - START - PAST
        here.reader.failure = None
        wait_for(lambda: all(evaluated > back for evaluated in here.evaluated().values()))
        assert {} == here.detector.failures.reasons


@pytest.mark.parametrize("hangs", ["host_job_info", "job_id="], ids=["discovery", "reads"])
def test_it_stops_while_everything_hangs(hangs: str) -> None:
    with running() as here:
        here.reader.hangs = (hangs,)
        here.thread.start()
        wait_for(lambda: here.reader.at_once or hangs != "job_id=")
        here.stop.set()
        here.thread.join(timeout=300)
        assert not here.thread.is_alive()


def test_a_bug_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    with running() as here:
        publish = here.detector.publish
        here.detector.publish = partial(raise_a_bug)  # type: ignore[method-assign]
        here.thread.start()
        wait_for(lambda: any(r.getMessage() == "loop_failed" for r in caplog.records))
        here.detector.publish = publish  # type: ignore[method-assign]
        wait_for(lambda: len(here.evaluated()) == JOBS)


@pytest.mark.parametrize("work", ["asking", "reading"])
def test_a_job_whose_work_cannot_be_given_out_is_given_out_later(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(cycle_seconds=0.5, diagnosis={"interval_seconds": 1})
    instants = FakeInstants(RunningClock())
    with running(config, instants) as here:
        give_out, failed = getattr(here.detector, work), threading.Event()

        def fails_once(job_id: str) -> object:
            if job_id == job(0) and not failed.is_set():
                failed.set()
                raise ValueError("a bug")
            return give_out(job_id)

        monkeypatch.setattr(here.detector, work, fails_once)
        # The loop takes the method as it is made.
        loop = Loop(here.detector)
        here.thread = threading.Thread(target=loop.run, args=(here.stop,))
        here.thread.start()
        wait_for(failed.is_set)
        wait_for(lambda: any(f'"{job(0)}"' in query for query in instants.asked))
        wait_for(lambda: job(0) in here.evaluated())


@dataclass
class HangingInstants(FakeInstants):
    """Hangs on the queries of one job until it is released."""

    hangs: str = ""
    released: threading.Event = field(default_factory=threading.Event)

    def read(self, queries: Mapping[str, str]) -> Answers:
        if any(self.hangs in query for query in queries.values()):
            self.released.wait(300)
        return super().read(queries)


def test_evidence_is_asked_for_though_no_range_can_be_read_and_the_reverse() -> None:
    config = config_for(cycle_seconds=0.5, diagnosis={"interval_seconds": 1})
    instants = HangingInstants(RunningClock(), hangs=f'"{job(0)}"')
    said = replace(VERDICT, node=f"{job(1)}-node-01")
    with running(config, instants) as here, pytest.MonkeyPatch.context() as patch:
        patch.setitem(Told.said, job(1), [said])
        here.reader.hangs = (f'"{job(1)}"',)
        here.thread.start()
        # The job whose ranges hang is diagnosed, again and again.
        wait_for(lambda: sum(f'"{job(1)}"' in query for query in instants.asked) > 3)
        snapshot = here.detector.snapshot
        assert [said.node] == [
            finding.node for found in snapshot.detections for finding in found.findings
        ]
        # The job whose evidence hangs is compared.
        wait_for(lambda: job(0) in here.evaluated())
        first = here.evaluated()[job(0)]
        wait_for(lambda: here.evaluated()[job(0)] > first + 1)
        assert not any(f'"{job(0)}"' in query for query in instants.asked)
        instants.released.set()


def raise_a_bug(*_: object) -> None:
    raise ValueError("a bug")


def test_an_unexpected_error_of_the_discovery_is_told_and_tried_again() -> None:
    with running() as here:
        here.reader.failures_by_query = {"host_job_info": ValueError("a bug")}
        here.thread.start()
        wait_for(lambda: here.detector.failures.reasons == {("discovery",): "ValueError"})
        here.reader.failures_by_query = {}
        wait_for(lambda: len(here.evaluated()) == JOBS)


def test_a_snapshot_does_not_change_while_jobs_are_evaluated() -> None:
    with running() as here:
        here.thread.start()
        wait_for(lambda: len(here.evaluated()) == JOBS)
        snapshot = here.detector.snapshot
        kept = (snapshot.detections, dict(snapshot.last_success), dict(snapshot.stages))
        first = here.evaluated()
        wait_for(lambda: all(here.evaluated()[name] > first[name] for name in first))
        assert kept == (snapshot.detections, snapshot.last_success, snapshot.stages)
        assert np.all(np.array(list(snapshot.backlog.lateness.values())) >= 0)
