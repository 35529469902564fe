"""What the environment of each process says, read rarely enough to be cheap.

A process's environment changes only when it executes another program, which keeps pid and start
time. So an answer is read again at growing intervals, from the next scan up to once a minute: a
process caught between fork and exec is understood one scan later.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peerwatch_exporter.sources.processes import Process, ProcessKey, ProcessTable

_LONGEST_TRUST_SECONDS = 60.0

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    answer: T | None
    name: str
    first_seen: float
    stale_at: float


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
        self._entries: dict[ProcessKey, _Entry[T]] = {}

    def find(self) -> list[tuple[Process, T]]:
        """Return the processes that ``classify`` had an answer for, in the order of their pids.

        Raises
        ------
        PermissionError
            If not one environment but the exporter's own may be read.
        """
        entries: dict[ProcessKey, _Entry[T]] = {}
        refused: PermissionError | None = None
        found = []
        now = self._monotonic()
        # Hundreds of processes, each second: the common case is a few comparisons.
        for process in self._in_order():
            key = process.pid, process.start_ticks
            entry = self._entries.get(key)
            if entry is None or not (
                (now < entry.stale_at and process.name == entry.name)
                or process.state == "zombie"  # its environment is gone; what it was is not
            ):
                try:
                    entry = self._read(process, entry, now)
                except PermissionError as error:
                    refused = error
                    continue
                if entry is None:
                    continue
            entries[key] = entry
            if entry.answer is not None:
                found.append((process, entry.answer))
        self._entries = entries
        if refused is not None and all(pid == os.getpid() for pid, _ in entries):
            raise refused
        return found

    def _in_order(self) -> list[Process]:
        processes = self._table.snapshot()
        return [processes[pid] for pid in sorted(processes)]

    def _read(self, process: Process, old: _Entry[T] | None, now: float) -> _Entry[T] | None:
        environment = self._table.environment(process.pid)
        if environment is None:
            return None
        first_seen = old.first_seen if old is not None and old.name == process.name else now
        trust = min(_LONGEST_TRUST_SECONDS, now - first_seen)
        return _Entry(self._classify(environment), process.name, first_seen, now + trust)
