"""A round on a clock of its own: what comes when, what is written, what ends it."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from peerwatch_demo.cluster.faults import Fault
from peerwatch_demo.cluster.nodes import Place
from peerwatch_demo.recording.live import Line, Listener, LiveLog
from peerwatch_demo.recording.round import Clock, Folder, Round
from peerwatch_demo.stack.console import Console
from peerwatch_demo.stack.process import StackError
from peerwatch_detector.errors import CaseError

BEGIN = 1_000_000.0


class FakeClock(Clock):
    """Time passes only while somebody waits."""

    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class FakeJob:
    """A job and its detector, which finds ``finds`` 20 s after a fault until 60 s after its end.

    ``slow`` of the faults leave the job at half its speed for 100 s.
    """

    def __init__(self, clock: FakeClock, finds: Callable[[str], str | None]) -> None:
        self.clock = clock
        self.finds = finds
        self.slow: set[str] = set()
        self.done: list[tuple[float, str]] = []
        self.ended: dict[str, float] = {}
        self.begun: dict[str, tuple[float, str]] = {}
        self.answers = True
        self.site = self

    def fault(self, name: str, *, final: bool = False) -> Fault:
        def inject(_site: object, node: Any) -> str:
            self.done.append((self.clock.now(), name))
            self.begun[name] = (self.clock.now(), node)
            return "done"

        def undo(_site: object, _node: object) -> None:
            self.done.append((self.clock.now(), f"no {name}"))
            self.ended[name] = self.clock.now()

        return Fault(name, "", inject, None if final else undo)

    def node(self, name: str) -> str:
        return name

    def steps_per_second(self) -> float:
        now = self.clock.now()
        ailing = [end for name, end in self.ended.items() if name in self.slow and now < end + 100]
        return 2.0 if ailing else 4.0

    def progress(self) -> str:
        return "4 steps/s"

    def fetch(self, _url: str) -> dict[str, Any] | None:
        if not self.answers:
            return None
        findings = []
        for name, (begun, node) in self.begun.items():
            found = self.finds(node)
            raised = begun + 20
            if found and raised <= self.clock.now() < self.ended.get(name, 1e12) + 60:
                findings.append(
                    {"node": found, "metric": name, "severity": "critical", "raised": raised}
                )
        return {"jobs": [{"findings": findings}]}


class FakeRound(Round):
    """A round whose stack is a ``FakeJob``; cases go to a list."""

    def __init__(self, folder: Path, job: FakeJob, *, broken: bool = False) -> None:
        self.job = job
        self.written: list[Line] = []
        self.broken = broken
        self.log = LiveLog(folder / "live.jsonl")
        self.directory = Folder(folder).path / "rounds" / "01-1"
        super().__init__(
            1,
            Folder(folder),
            self.log,
            Place(folder),
            Console(io.StringIO(), {}),
            clock=job.clock,
            write=self.keep,
        )

    def keep(self, _folder: Path, line: Line, _config: Path) -> None:
        if self.broken:
            raise CaseError("no sample")
        self.written.append(line)

    def _start(self, outer: ExitStack, *, namespaces: bool) -> tuple[Any, Listener]:
        return self.job, Listener("http://detector", self.job.clock.now, self.job.fetch)

    def play(self, faults: Sequence[Fault]) -> None:
        nodes = [f"node-{number}" for number in range(len(faults))]
        self.faults(list(zip(faults, nodes, strict=True)), namespaces=True)


def itself(node: str) -> str:
    return node


def test_a_fault_comes_after_a_minute_and_ends_five_seconds_after_the_finding(
    tmp_path: Path,
) -> None:
    job = FakeJob(FakeClock(), itself)

    played = FakeRound(tmp_path, job)
    played.play([job.fault("hog")])

    (line,) = played.written
    assert [(BEGIN + 60, "hog"), (BEGIN + 85, "no hog")] == job.done
    assert (BEGIN, BEGIN + 60, BEGIN + 85) == (line.start, line.onset, line.end)
    assert ("hog-01", "node-0", "right", 20.0) == (
        line.case,
        line.node,
        line.outcome,
        line.delay_seconds,
    )
    assert 4.0 == line.steps_per_second
    assert played.written == played.log.lines


def test_the_next_waits_until_the_finding_falls_and_the_job_has_been_well(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)
    job.slow = {"nic"}

    FakeRound(tmp_path, job).play([job.fault("hog"), job.fault("nic"), job.fault("hog2")])

    at = {name: time for time, name in job.done}
    # The finding falls 60 s after the end; the export took 3 of them.
    assert 63 <= at["nic"] - at["no hog"] <= 64
    # The job is slow for 100 s and must then be well for a minute.
    assert 159 <= at["hog2"] - at["no nic"] <= 166


def test_a_single_slow_step_is_part_of_health(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)
    plain = job.steps_per_second
    slow = BEGIN + 120, BEGIN + 123
    job.steps_per_second = (  # type: ignore[method-assign]
        lambda: 1.0 if slow[0] <= job.clock.now() < slow[1] else plain()
    )

    FakeRound(tmp_path, job).play([job.fault("hog"), job.fault("nic")])

    at = {name: time for time, name in job.done}
    assert at["no hog"] < slow[0] < slow[1] < at["nic"]
    assert at["nic"] - at["no hog"] <= 64


def test_a_missed_fault_is_given_a_minute_and_its_data_stay(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), lambda _: None)

    played = FakeRound(tmp_path, job)
    played.play([job.fault("hog")])

    (line,) = played.written
    assert ("missed", 65.0) == (line.outcome, line.end - line.onset)
    assert played.directory.exists()


def test_when_all_is_right_the_data_of_the_round_go(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)

    played = FakeRound(tmp_path, job)
    assert played.directory.exists()
    played.play([job.fault("hog")])

    assert not played.directory.exists()


def test_a_wrong_node_is_written_down_as_it_is(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), lambda _: "node-7")

    played = FakeRound(tmp_path, job)
    played.play([job.fault("hog")])

    assert ["wrong"] == [line.outcome for line in played.written]
    assert ["node-7"] == [finding.node for finding in played.written[0].findings]
    assert played.directory.exists()


def test_nothing_comes_after_what_cannot_be_undone(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)

    FakeRound(tmp_path, job).play([job.fault("dead", final=True), job.fault("hog")])

    assert [(BEGIN + 60, "dead")] == job.done


def test_a_job_that_does_not_recover_ends_the_round_and_keeps_what_there_is(
    tmp_path: Path,
) -> None:
    job = FakeJob(FakeClock(), itself)
    job.ended["hog"] = 1e12
    hog = job.fault("hog")
    lasting = Fault(hog.name, hog.summary, hog.inject, lambda _site, _node: None)

    played = FakeRound(tmp_path, job)
    with pytest.raises(StackError, match=r"300 s after hog, .* findings stand for: node-0"):
        played.play([lasting, job.fault("nic")])

    assert ["hog-01"] == [line.case for line in played.log.lines]


def test_a_finding_while_the_job_recovers_has_its_own_line(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)
    plain = job.fetch

    def with_echo(url: str) -> dict[str, Any] | None:
        answer = plain(url)
        after = job.clock.now() - job.ended.get("hog", 1e12)
        if answer is not None and 10 <= after < 70:
            echo = {"node": "node-6", "metric": "cpu_usage", "severity": "critical", "raised": 1.0}
            answer["jobs"][0]["findings"].append(echo)
        return answer

    job.fetch = with_echo  # type: ignore[method-assign]
    played = FakeRound(tmp_path, job)
    played.play([job.fault("hog"), job.fault("nic")])

    assert ["fault", "stray", "fault"] == [line.kind for line in played.log.lines]
    assert ["right", "wrong", "right"] == [line.outcome for line in played.log.lines]
    assert ("hog", ["node-6"]) == (
        played.log.lines[1].fault,
        [finding.node for finding in played.log.lines[1].findings],
    )


def test_a_case_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)

    played = FakeRound(tmp_path, job, broken=True)
    played.play([job.fault("hog"), job.fault("nic")])

    assert ["no sample", "no sample"] == [line.note for line in played.log.lines]
    assert played.directory.exists()


def test_a_detector_that_falls_silent_is_not_taken_for_health(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)
    job.answers = False

    with pytest.raises(StackError, match="did not answer 20 times"):
        FakeRound(tmp_path, job).play([job.fault("hog")])


def test_the_healthy_case_begins_after_a_minute_and_has_no_node(tmp_path: Path) -> None:
    job = FakeJob(FakeClock(), itself)

    played = FakeRound(tmp_path, job)
    played.healthy(30, namespaces=True)

    (line,) = played.written
    assert ("healthy", "healthy-01", "") == (line.kind, line.case, line.node)
    assert (BEGIN + 60, BEGIN + 1860) == (line.start, line.end)
    assert "right" == line.outcome
