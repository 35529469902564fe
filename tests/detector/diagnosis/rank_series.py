"""What exporters show of the ranks of one job, as its diagnoser of processes reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from peerwatch_detector.diagnosis.processes.process_diagnoser import ProcessDiagnoser
from peerwatch_detector.diagnosis.verdict import Verdict
from peerwatch_detector.frame import Series

START = 1_700_000_000.0
ASKED_EVERY = 5.0


@dataclass
class Rank:
    """One rank as its exporter shows it."""

    node: str
    state: str = "sleeping"
    since: float = 0.0
    size: str = "4"
    how: dict[str, str] = field(default_factory=dict)


@dataclass
class JobSeries:
    """A job of four ranks, one on each node unless said otherwise, and its diagnoser."""

    ranks: dict[object, Rank] = field(
        default_factory=lambda: {number: Rank(f"c{number}") for number in range(4)}
    )
    now: float = START
    shares: dict[int, float] = field(default_factory=dict)
    oom: tuple[str, ...] = ()
    mismatch: dict[int, float] = field(default_factory=dict)
    cut_off: set[str] = field(default_factory=set)
    hooked: bool = True
    written: dict[int, float] = field(default_factory=dict)
    steps: dict[int, float] = field(default_factory=dict)
    diagnoser: ProcessDiagnoser = field(default_factory=lambda: ProcessDiagnoser("llm"))

    def halt(self, number: object, state: str = "exited", **how: str) -> None:
        self.ranks[number].state, self.ranks[number].since = state, self.now
        self.ranks[number].how = how

    def finish(self, *numbers: object) -> None:
        """End as a program that is done: it takes its heartbeat with it."""
        for number in numbers:
            del self.ranks[number]

    def ask(self) -> list[Verdict]:
        return list(self.diagnoser.diagnose(self._samples(), self.now))

    def run(self, seconds: float) -> list[Verdict]:
        """Let time pass, and return what is said at its end."""
        end, said = self.now + seconds, self.ask()
        while self.now < end:
            self.now += ASKED_EVERY
            said = self.ask()
        return said

    def _samples(self) -> dict[str, list[Series]]:
        found: dict[str, list[Series]] = {name: [] for name in self.diagnoser.queries}
        for node in ("c0", "c1", "c2", "c3", "c9"):
            if node not in self.cut_off:
                self._add(found["watched"], {"node": node})
        for key, rank in self.ranks.items():
            if rank.node in self.cut_off:
                continue
            whom = {"node": rank.node, "rank": str(key).split("/")[0]}
            self._add(found["ranks"], {**whom, "world_size": rank.size})
            if rank.state:
                self._add(found["states"], {**whom, "state": rank.state})
            if rank.state in ("exited", "zombie", "stopped") or rank.how.get("error"):
                self._add(found["since"], whom, rank.since)
            if self.hooked:
                self._add(found["heartbeats"], whom, self.now)
            if rank.how:
                self._add(found["exits"], {**whom, **rank.how})
        for number, share in self.shares.items():
            self._add(found["stopped"], {"node": f"c{number}", "rank": str(number)}, share)
        for name, counts in (("written", self.written), ("steps", self.steps)):
            for number, value in counts.items():
                self._add(found[name], {"node": f"c{number}", "rank": str(number)}, value)
        for number, time in self.mismatch.items():
            self._add(found["mismatch"], {"node": f"c{number}", "rank": str(number)}, time)
        for node in self.oom:
            self._add(found["oom"], {"node": node})
        return found

    def _add(self, to: list[Series], labels: dict[str, str], value: float = 1.0) -> None:
        to.append(Series(labels, np.array([self.now]), np.array([value])))
