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
    read_at: float

    def is_fresh(self, process: Process, now: float) -> bool:
        if process.state == "zombie":  # its environment is gone; what it was is not
            return True
        trust = min(_LONGEST_TRUST_SECONDS, self.read_at - self.first_seen)
        return process.name == self.name and now - self.read_at < trust


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
        readable = 0
        for pid, process in sorted(self._table.snapshot().items()):
            try:
                entry = self._entry(process)
            except PermissionError as error:
                refused = error
                continue
            if entry is None:
                continue
            readable += pid != os.getpid()
            entries[process.key] = entry
            if entry.answer is not None:
                found.append((process, entry.answer))
        self._entries = entries
        if refused is not None and not readable:
            raise refused
        return found

    def _entry(self, process: Process) -> _Entry[T] | None:
        now = self._monotonic()
        old = self._entries.get(process.key)
        if old is not None and old.is_fresh(process, now):
            return old
        environment = self._table.environment(process.pid)
        if environment is None:
            return None
        first_seen = old.first_seen if old is not None and old.name == process.name else now
        return _Entry(self._classify(environment), process.name, first_seen, now)
