"""A process that reads and evaluates training jobs in simulated time, by the real schedule."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from peerwatch_detector.service.schedule import Schedule


@dataclass(frozen=True)
class Cost:
    """What a job's turn takes: seconds in a reading thread and at the evaluate."""

    read: float = 0.05
    detect: float = 0.02
    nodes: int = 16
    fails: bool = False


@dataclass(frozen=True)
class Turn:
    """One turn of a job, as it went; times in seconds."""

    job_id: str
    began: float
    ended: float
    late: float


@dataclass
class Process:
    """The threads and the evaluate of one process.

    ``run`` goes on until no turn begins before the time given, as the loop would.
    """

    costs: dict[str, Cost]
    threads: int = 4
    cycle: float = 15.0
    now: float = 1000.0
    turns: list[Turn] = field(default_factory=list)
    most_at_once: dict[str, int] = field(default_factory=dict)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    to_evaluate: deque[str] = field(default_factory=deque)
    at_work: dict[str, float] = field(default_factory=dict)
    detecting: str | None = None

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.cycle, self.threads)
        self.follow(self.costs)

    def follow(self, costs: dict[str, Cost]) -> None:
        """Discover these jobs."""
        self.costs = costs
        self.schedule.follow({name: cost.nodes for name, cost in costs.items()}, self.now)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            self._start()
            due = self.now + self.schedule.seconds_until_due(self.now)
            nearest = min(due, self.events[0][0] if self.events else due)
            if nearest > end:
                self.now = end
                return
            self.now = nearest
            while self.events and self.events[0][0] <= self.now:
                _, kind, job_id = heapq.heappop(self.events)
                (self._has_read if kind == "read" else self._evaluated)(job_id)

    def late(self, job_id: str) -> list[float]:
        """Return how late each turn of a job ended."""
        return [turn.late for turn in self.turns if turn.job_id == job_id]

    def seconds_used(self, job_id: str) -> float:
        """Return what a job has had of the process, in seconds of all of it."""
        cost = self.costs[job_id]
        return len(self.late(job_id)) * (cost.read / self.threads + cost.detect)

    def _start(self) -> None:
        while (job_id := self.schedule.begin(self.now)) is not None:
            assert job_id not in self.at_work, f"{job_id} is in two places at once"
            self.at_work[job_id] = self.now
            self._later("read", job_id, self.costs[job_id].read)
        if self.detecting is None and self.to_evaluate:
            self.detecting = self.to_evaluate.popleft()
            cost = self.costs[self.detecting]
            self._later("evaluated", self.detecting, 0.0 if cost.fails else cost.detect)

    def _later(self, kind: str, job_id: str, seconds: float) -> None:
        heapq.heappush(self.events, (self.now + seconds, kind, job_id))

    def _has_read(self, job_id: str) -> None:
        self.schedule.has_read(job_id, self.costs[job_id].read)
        self.to_evaluate.append(job_id)

    def _evaluated(self, job_id: str) -> None:
        cost = self.costs[job_id]
        self.detecting = None
        self.schedule.end(job_id, 0.0 if cost.fails else cost.detect, self.now, failed=cost.fails)
        late = self.schedule.backlog(self.now).lateness.get(job_id, 0.0)
        self.turns.append(Turn(job_id, self.at_work.pop(job_id), self.now, late))
