"""What a process and its children cost, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of a process and all of its descendants.

    Parameters
    ----------
    cpu_seconds
        Time in user and kernel mode, by process id; the process itself comes first.
    rss_bytes, pss_bytes
        Resident memory summed; shared pages count for each process, or in parts.
    """

    cpu_seconds: dict[int, float]
    rss_bytes: int
    pss_bytes: int

    def cpu_since(self, earlier: Usage) -> float:
        """Return CPU seconds since an earlier look; of ended processes nothing counts."""
        return sum(
            seconds - earlier.cpu_seconds.get(pid, 0.0) for pid, seconds in self.cpu_seconds.items()
        )

    def children_since(self, earlier: Usage) -> float:
        """Return those of the descendants alone."""
        parent = next(iter(self.cpu_seconds))
        own = self.cpu_seconds[parent] - earlier.cpu_seconds.get(parent, 0.0)
        return self.cpu_since(earlier) - own


def usage(pid: int) -> Usage:
    """Return the use of ``pid`` and its descendants now."""
    pids = family_of(pid)
    memory = [_memory(member) for member in pids]
    return Usage(
        {member: _cpu_seconds(member) for member in pids},
        sum(resident for resident, _ in memory),
        sum(shared_out for _, shared_out in memory),
    )


def family_of(pid: int) -> list[int]:
    """Return ``pid`` and its descendants that live."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def _stat(pid: int) -> list[str]:
    """Return what follows the name in /proc/<pid>/stat: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND if fields else 0.0


def _memory(pid: int) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    kilobytes = {
        name: int(text.split()[0]) for name, _, text in (line.partition(":") for line in lines)
    }
    return kilobytes["Rss"] * 1024, kilobytes["Pss"] * 1024
