"""What others use of a node while something is measured: a low value then says little of the node.

The guard (``run.busy``) looks before a check; whoever comes during it is seen here. Also what a
hypervisor gives to other machines counts (steal).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_checks.check import Context

# While a quarter of the CPUs is idle, the least time of each part is found there. On two CPUs, one
# process of others must not hide a slow memory. What it changes: docs/checks.md.
_MOST_CPU = 0.75
# Of the bytes that the check itself moves: what others move meanwhile. Chosen: as much of the disk
# as of the CPUs above.
_MOST_BYTES = 0.25
# The kernel's unit in this file, whatever the disk has (Documentation/block/stat.rst).
_SECTOR_BYTES = 512
# /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; the guests' are in user.
_IDLE = (3, 4)
_COLUMNS = 8
# /sys/dev/block/*/stat: sectors read and written.
_SECTORS = (2, 6)


class Disturbance:
    """Counts from when it is made what others use; a moment of it at least is needed.

    Parameters
    ----------
    context
        Where the node's file systems are.
    place
        A folder on the disk that is tested; None: no disk is.
    """

    def __init__(self, context: Context, place: Path | None = None) -> None:
        self._stat = context.procfs / "stat"
        self._disk = None if place is None else _disk_of(place, context.sysfs)
        self._cpu, self._all, self._own = self._cpu_seconds()
        self._bytes = self._disk_bytes()

    def reason(self, own_bytes: int = 0) -> str:
        """Return what others used so far, a sentence; empty: not enough to count, or not known.

        Parameters
        ----------
        own_bytes
            What the check itself has written to the disk and read from it.
        """
        used, every, own = self._cpu_seconds()
        others = (used - self._cpu) - (own - self._own)
        if every > self._all and others > _MOST_CPU * (every - self._all):
            share = min(1.0, others / (every - self._all))
            return f"Others used {share:.0%} of the CPU time meanwhile."
        moved = self._disk_bytes() - self._bytes - own_bytes
        if self._disk is not None and moved > _MOST_BYTES * own_bytes:
            return f"Others moved {moved / 1e6:.0f} MB to and from the disk meanwhile."
        return ""

    def _cpu_seconds(self) -> tuple[float, float, float]:
        """Return CPU time in use, all there is, and that of this process and its children."""
        own = os.times()
        mine = own.user + own.system + own.children_user + own.children_system
        try:
            words = self._stat.read_text(encoding="ascii").partition("\n")[0].split()
            ticks = [int(word) for word in words[1 : 1 + _COLUMNS]]
        except (OSError, ValueError):
            return 0.0, 0.0, mine
        hertz = os.sysconf("SC_CLK_TCK")
        idle = sum(ticks[column] for column in _IDLE if column < len(ticks))
        return (sum(ticks) - idle) / hertz, sum(ticks) / hertz, mine

    def _disk_bytes(self) -> int:
        if self._disk is None:
            return 0
        try:
            fields = self._disk.read_text(encoding="ascii").split()
            return sum(int(fields[field]) for field in _SECTORS) * _SECTOR_BYTES
        except (OSError, ValueError, IndexError):
            return 0


def _disk_of(place: Path, sysfs: Path) -> Path | None:
    """Return the statistics of the whole disk that a folder is on; None if it is on none."""
    try:
        device = place.stat().st_dev
    except OSError:
        return None
    folder = sysfs / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    if (folder / "partition").exists():
        # Others may use another part of it.
        folder = folder.resolve().parent
    return folder / "stat" if (folder / "stat").exists() else None
