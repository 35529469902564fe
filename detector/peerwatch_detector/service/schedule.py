"""Which training job is read and evaluated next: fair, without a clock, thread or network.

Every job is due once a cycle, at a time within it that follows from its id, so that the server
sees a trickle and not a burst. Of the jobs that are due, the one goes first whose turn begins
earliest in virtual time (start-time fair queueing, Goyal et al. 1996): a turn ends, and the next
begins, as much later as it cost for the job's size. While all are behind, each gets the process's
time by the number of its nodes: cycles stretch alike, and a job that costs 100 times as much as
others of its size is evaluated the more rarely instead of delaying them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

# A job that fails again and again is tried again after at most so many cycles. Chosen: a minute of
# cycles of 15 s, since a server that is back should not be waited for.
_LONGEST_BACK_OFF = 4.0
# Seconds a turn costs at least, so that virtual time always goes on. Chosen: less than a real turn.
_LEAST_COST = 1e-3

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far behind a schedule is.

    Parameters
    ----------
    lateness
        Seconds, by job: from when it was due to the end of its last turn, evaluated or failed;
        while it is overdue by more than that, by how much.
    waiting
        Jobs that are due and neither read nor evaluated at the moment.
    skipped
        Cycles of all jobs so far that were left out because the turn before had not ended.
    """

    lateness: Mapping[str, float] = field(default_factory=lambda: _NONE)
    waiting: int = 0
    skipped: int = 0


@dataclass(slots=True)
class _Turns:
    """One job's turns; its times are those of the caller's clock, its tags virtual."""

    weight: int
    phase: float
    due: float
    stage: Literal["waiting", "reading", "detecting"] = "waiting"
    start_tag: float | None = None
    finish_tag: float = 0.0
    ended: float = -math.inf
    read_seconds: float = math.inf
    late: float = 0.0
    failures: int = 0
    leaving: bool = False


class Schedule:
    """Keeps the turns of all jobs.

    Parameters
    ----------
    cycle_seconds
        Time between two turns of a job.
    threads
        Jobs that may be read at a time. As many may wait, read, to be evaluated.
    """

    def __init__(self, cycle_seconds: float, threads: int) -> None:
        self.cycle_seconds = cycle_seconds
        self.threads = threads
        self._jobs: dict[str, _Turns] = {}
        self._virtual = 0.0
        self._skipped = 0

    def follow(self, weights: Mapping[str, int], now: float) -> None:
        """Go on with these jobs: new ones are due at once, others are given up.

        Parameters
        ----------
        weights
            Size of every job, in nodes.
        now
            Seconds of the caller's clock.
        """
        for job_id, weight in weights.items():
            if job_id not in self._jobs:
                phase = fraction(job_id) * self.cycle_seconds
                self._jobs[job_id] = _Turns(max(1, weight), phase, now)
            job = self._jobs[job_id]
            job.weight, job.leaving = max(1, weight), False
        for job_id in self._jobs.keys() - weights.keys():
            self._jobs[job_id].leaving = True
            self._drop_if_idle(job_id)

    def begin(self, now: float) -> str | None:
        """Return the job to read now, None if none is due or no thread is free for it."""
        self._queue(now)
        stages = [job.stage for job in self._jobs.values()]
        if stages.count("reading") >= self.threads or stages.count("detecting") >= self.threads:
            return None
        total = sum(job.weight for job in self._jobs.values())
        reading = [job for job in self._jobs.values() if job.stage == "reading"]
        slow = sum(self._is_slow(job, total) for job in reading)
        full = slow >= max(1, self.threads // 2)
        ready = [
            (job.start_tag, job.due, job_id)
            for job_id, job in self._jobs.items()
            if job.start_tag is not None and not (full and self._is_slow(job, total))
        ]
        if not ready:
            return None
        tag, _, job_id = min(ready)
        self._virtual = max(self._virtual, tag)
        job = self._jobs[job_id]
        job.stage, job.start_tag, job.finish_tag = "reading", None, tag
        return job_id

    def has_read(self, job_id: str, seconds: float) -> None:
        """Take down that a job has been read; it waits to be evaluated.

        Parameters
        ----------
        job_id
            The job.
        seconds
            How long it held its thread.
        """
        job = self._jobs[job_id]
        job.stage, job.read_seconds = "detecting", seconds
        self._charge(job, seconds / self.threads)

    def read_on(self, job_id: str, seconds: float) -> None:
        """Take down that a part of a job was evaluated, and that the next one is being read.

        Parameters
        ----------
        job_id
            The job.
        seconds
            How long the part was evaluated.
        """
        job = self._jobs[job_id]
        job.stage = "reading"
        self._charge(job, max(_LEAST_COST, seconds))

    def end(self, job_id: str, seconds: float, now: float, *, failed: bool = False) -> None:
        """Take down that a job's turn is over.

        Parameters
        ----------
        job_id
            The job.
        seconds
            How long it was evaluated.
        now
            Seconds of the caller's clock.
        failed
            Whether reading or evaluating it failed.
        """
        job = self._jobs[job_id]
        self._charge(job, max(_LEAST_COST, seconds))
        job.stage, job.ended, job.late = "waiting", now, max(0.0, now - job.due)
        job.failures = job.failures + 1 if failed else 0
        job.due = self._next_due(job, now)
        if job.failures > 1:
            job.due = max(job.due, now + self._back_off(job_id, job.failures))
        self._drop_if_idle(job_id)

    def retry(self, now: float) -> None:
        """Forget that jobs failed: what kept them from being read is over."""
        for job in self._jobs.values():
            if job.failures and job.stage == "waiting":
                job.due = min(job.due, self._on_grid(job, now))
                job.failures = 0

    def seconds_until_due(self, now: float) -> float:
        """Return the time until the next job that is not due yet; infinite without one."""
        later = [
            job.due - now for job in self._jobs.values() if job.stage == "waiting" and job.due > now
        ]
        return min(later, default=math.inf)

    def backlog(self, now: float) -> Backlog:
        """Return how far behind the schedule is."""
        lateness = {
            job_id: max(job.late, now - job.due)
            for job_id, job in self._jobs.items()
            if not job.leaving
        }
        due = [job for job in self._jobs.values() if job.stage == "waiting" and job.due <= now]
        return Backlog(lateness, len(due), self._skipped)

    def _queue(self, now: float) -> None:
        """Give every job that has become due its start in virtual time."""
        for job in self._jobs.values():
            if job.stage == "waiting" and job.start_tag is None and job.due <= now:
                # Recent cost counts: half of a debt is forgiven in every cycle of rest, which
                # nobody else had a use for.
                rest = max(0.0, job.due - job.ended) / self.cycle_seconds
                debt = max(0.0, job.finish_tag - self._virtual)
                job.start_tag = self._virtual + debt * 0.5**rest

    def _is_slow(self, job: _Turns, total: int) -> bool:
        """Whether not all, of this size in total, could be read in a cycle if they took as long.

        One that has not been read yet counts as slow: its history takes longer than what is new,
        and nobody knows better.
        """
        share = self.cycle_seconds * self.threads * job.weight / total
        return job.read_seconds > share

    def _charge(self, job: _Turns, seconds: float) -> None:
        job.finish_tag += seconds / job.weight

    def _next_due(self, job: _Turns, now: float) -> float:
        """Return the next time of the job's grid; the newest one if some have passed already."""
        due = self._on_grid(job, job.due + self.cycle_seconds / 2)
        behind = max(0, math.floor((now - due) / self.cycle_seconds))
        self._skipped += behind
        return due + behind * self.cycle_seconds

    def _on_grid(self, job: _Turns, time: float) -> float:
        """Return the first time of the job's grid that is not before ``time``."""
        cycles = math.ceil((time - job.phase) / self.cycle_seconds)
        return job.phase + cycles * self.cycle_seconds

    def _back_off(self, job_id: str, failures: int) -> float:
        """Return the seconds to wait after so many failures: doubling, capped, spread out."""
        cycles = min(_LONGEST_BACK_OFF, 2.0 ** (failures - 1))
        return self.cycle_seconds * cycles * (0.75 + fraction(f"{job_id}/{failures}") / 2)

    def _drop_if_idle(self, job_id: str) -> None:
        """Drop a job that is to leave, unless somebody is still at work on it."""
        job = self._jobs[job_id]
        if job.leaving and job.stage == "waiting":
            del self._jobs[job_id]


def fraction(text: str) -> float:
    """Return a number in [0, 1) that follows from a text, evenly spread and the same everywhere."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    # As many bits as a float holds, or the largest would round to 1.
    return (int.from_bytes(digest, "big") >> 11) / 2**53
