"""The environment of each process, read rarely enough to be cheap.

A process's environment changes only when it executes another program, which keeps pid and start
time. Where the kernel shows where the environment lies, another address means another program;
since two could lie in the same place, an answer is read again after ten minutes at most. Elsewhere
it is read again at growing intervals, from the next scan up to once a minute: a process caught
between fork and exec is understood one scan later.
"""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peerwatch_exporter.sources.host.processes import Process, ProcessTable

# Chosen: of 2,000 processes some 30 are read a second.
_LONGEST_VALID_SECONDS = 60.0
# Where an exec would be seen: read a tenth as often.
_SURE_VALID_SECONDS = 600.0

T = TypeVar("T")


@dataclass(slots=True)
class _Entry:
    program: tuple[int, int, str]
    first_seen: float
    stale_at: float

    def is_of(self, process: Process) -> bool:
        """Return whether the process still runs the program that the answer was read of."""
        start_ticks, image, name = self.program
        if start_ticks != process.start_ticks or image != process.image:
            return False
        # Without the address, another name is the only evidence of another program.
        return image != 0 or name == process.name


class EnvironmentIndex(Generic[T]):
    """Finds the processes whose environment has something to say.

    Parameters
    ----------
    table
        The node's processes.
    classify
        What an environment means to the caller; ``None`` means the process is none of its.
    monotonic
        Clock for the age of answers.
    """

    def __init__(
        self,
        table: ProcessTable,
        classify: Callable[[Mapping[str, str]], T | None],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._table = table
        self._classify = classify
        self._monotonic = monotonic
        self._reader = table.reader()
        self._entries: dict[int, _Entry] = {}
        self._stale: list[tuple[float, int]] = []
        self._news: set[int] = set()
        self._answers: dict[int, T] = {}
        self._refused: dict[int, PermissionError] = {}

    def find(self) -> list[tuple[Process, T]]:
        """Return the processes that ``classify`` had an answer for, in the order of their pids.

        Raises
        ------
        PermissionError
            If not one environment but the exporter's own may be read.
        """
        now = self._monotonic()
        # Hundreds of processes, each second: only those that changed are checked.
        processes, news = self._table.news(self._reader)
        self._news |= news
        while self._stale and self._stale[0][0] <= now:
            self._news.add(heapq.heappop(self._stale)[1])
        while self._news:
            pid = next(iter(self._news))
            self._check(pid, processes.get(pid), now)
            self._news.remove(pid)
        if self._refused and not self._entries.keys() - self._refused.keys() - {os.getpid()}:
            raise next(iter(self._refused.values()))
        return [(processes[pid], answer) for pid, answer in sorted(self._answers.items(), key=_pid)]

    def _check(self, pid: int, process: Process | None, now: float) -> None:
        entry = self._entries.get(pid)
        if process is None:
            self._forget(pid)
        # The environment of a zombie is gone; what it was is not.
        elif entry is not None and process.state == "zombie":
            self._wait(pid, entry, now)
        elif entry is None or now >= entry.stale_at or not entry.is_of(process):
            self._read(process, entry, now)

    def _read(self, process: Process, old: _Entry | None, now: float) -> None:
        pid = process.pid
        self._forget(pid)
        answer = None
        try:
            environment = self._table.environment(pid)
            if environment is None:
                # It ended, which the next listing will show, or is just being made.
                heapq.heappush(self._stale, (now, pid))
                return
            answer = self._classify(environment)
        except PermissionError as error:
            self._refused[pid] = error
        first_seen = old.first_seen if old is not None and old.is_of(process) else now
        entry = self._entries[pid] = _Entry(process.program, first_seen, now)
        if answer is not None:
            self._answers[pid] = answer
        self._wait(pid, entry, now)

    def _wait(self, pid: int, entry: _Entry, now: float) -> None:
        if entry.program[1]:
            # Not all of them in the same second.
            valid_seconds = _SURE_VALID_SECONDS * (1 - pid % 256 / 512)
        else:
            valid_seconds = min(_LONGEST_VALID_SECONDS, now - entry.first_seen)
        entry.stale_at = now + valid_seconds
        heapq.heappush(self._stale, (entry.stale_at, pid))

    def _forget(self, pid: int) -> None:
        self._entries.pop(pid, None)
        self._answers.pop(pid, None)
        self._refused.pop(pid, None)


def _pid(answer: tuple[int, object]) -> int:
    return answer[0]
