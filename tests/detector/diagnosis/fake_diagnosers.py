"""A diagnoser that repeats what it is told, and a Prometheus that answers its one query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from detector.fakes import FakeClock
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import PartialAnswer, Series
from peerwatch_detector.reading.instant_reader import Answers

VERDICT = Verdict(
    job_id="job-1",
    node="node-01",
    rank=3,
    class_name="rank_exited",
    domain="unknown",
    confidence="sure",
    action="restart",
    summary="rank 3 on node node-01 exited with signal SIGKILL; 3 ranks wait",
    victims=(0, 1, 2),
    start_time=1_700_000_000.0,
)


class Told:
    """Says what ``said`` holds for the job."""

    name: ClassVar[str] = "told"
    queries: ClassVar[Mapping[str, str]] = {"state": "rank_process_state{ {{ job }} }"}
    said: ClassVar[dict[str, list[Verdict]]] = {}

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        assert set(samples) == {"state"}
        return [replace(verdict, job_id=self.job_id) for verdict in self.said.get(self.job_id, ())]


class Broken(Told):
    """Meets a bug whenever it is asked."""

    name = "broken"

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        raise ZeroDivisionError("a bug")


@dataclass
class FakeInstants:
    """Answers every query with one sample of now, or fails."""

    clock: FakeClock
    failure: ReadFailure | None = None
    partial: bool = False
    asked: list[str] = field(default_factory=list)
    errors: dict[ReadFailure, int] = field(default_factory=dict)

    def read(self, queries: Mapping[str, str]) -> Answers:
        self.asked += queries.values()
        if self.failure is not None:
            self.errors[self.failure] = self.errors.get(self.failure, 0) + 1
            raise ReadError(self.failure, "The fake does not answer.")
        now = Series({}, np.array([self.clock.now]), np.ones(1))
        kind = PartialAnswer if self.partial else list
        return {name: kind([now]) for name in queries}

    def close(self) -> None:
        pass
