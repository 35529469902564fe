"""The counters of the whole machine, read once for all who want them at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.procfs import GarbledFileError, Procfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peerwatch_exporter.sources.host.procfs import MachineStat


class Machine:
    """Reads ``/proc/stat``, which with many CPUs and interrupts takes the kernel long to write.

    Parameters
    ----------
    root
        The /proc root.
    monotonic
        Clock for the age of a reading.
    max_age_seconds
        So young a reading still says how many forks there were.
    """

    def __init__(
        self, root: Path, monotonic: Callable[[], float], max_age_seconds: float = 0.5
    ) -> None:
        self._procfs = Procfs(root)
        self._monotonic = monotonic
        self._max_age_seconds = max_age_seconds
        self._newest: tuple[float, int | None] | None = None

    def stat(self) -> MachineStat:
        """Return the counters as they are now.

        Raises
        ------
        OSError, GarbledFileError
            If they cannot be read.
        """
        now = self._monotonic()
        found = self._procfs.stat()
        self._newest = now, found.forks
        return found

    def forks(self) -> int | None:
        """Return how many processes and threads were made by a moment ago; None: not known."""
        newest = self._newest
        if newest is not None and self._monotonic() - newest[0] <= self._max_age_seconds:
            return newest[1] or None
        try:
            # Kernels that are none, such as gVisor, say 0.
            return self.stat().forks or None
        except (OSError, GarbledFileError):
            return None
