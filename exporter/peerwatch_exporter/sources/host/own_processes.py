"""CPU time and memory of the exporter's own processes.

Always from this process's own /proc, never from ``paths.procfs``: the ids of our children are
those of our own process namespace.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.files.whole_file import read_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessUse(NamedTuple):
    """What the processes of one kind use.

    Parameters
    ----------
    process
        ``main``, ``driver``, ``sampler``, ``logs`` or ``dcgm``.
    cpu_seconds
        CPU time, that of processes which have ended included.
    resident_bytes
        Resident memory; shared pages count for each process.
    """

    process: str
    cpu_seconds: float
    resident_bytes: int


@dataclass(slots=True)
class _Process:
    kind: str
    cpu_seconds: float = 0.0


class OwnProcesses:
    """The processes that belong to this exporter; safe for any number of threads.

    Parameters
    ----------
    proc
        Root of the process table.
    main
        The process id that counts as ``main``.
    """

    def __init__(self, proc: Path = Path("/proc"), main: int | None = None) -> None:
        self._proc = str(proc)
        self._lock = threading.Lock()
        self._processes = {main or os.getpid(): _Process("main")}
        self._ended: dict[str, float] = {}

    def add(self, kind: str, pid: int) -> None:
        """Count a child process in, as ``driver``, ``sampler``, ``logs`` or ``dcgm``."""
        with self._lock:
            self._processes[pid] = _Process(kind)

    def remove(self, pid: int) -> None:
        """Forget a child that has ended; the CPU time it was last seen with still counts."""
        with self._lock:
            process = self._processes.pop(pid, None)
            if process is not None:
                ended = self._ended.get(process.kind, 0.0)
                self._ended[process.kind] = ended + process.cpu_seconds

    def use(self) -> Sequence[ProcessUse]:
        """Return the use of each kind of process there is or was, by kind."""
        with self._lock:
            cpu = dict(self._ended)
            resident = dict.fromkeys(cpu, 0)
            for pid, process in self._processes.items():
                found = _read(f"{self._proc}/{pid}/stat")
                if found is not None:
                    process.cpu_seconds = found[0]
                    resident[process.kind] = resident.get(process.kind, 0) + found[1]
                cpu[process.kind] = cpu.get(process.kind, 0.0) + process.cpu_seconds
        return [ProcessUse(kind, cpu[kind], resident.get(kind, 0)) for kind in sorted(cpu)]


def _read(path: str) -> tuple[float, int] | None:
    try:
        text = read_whole(path)
        # The command's name stands in parentheses and may hold anything, parentheses too.
        fields = text[text.rindex(b")") + 2 :].split()
        ticks = int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_SECOND, int(fields[21]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
