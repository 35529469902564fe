"""The kernel log for those who count in it: Unix times, bursts, and no flood of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.procfs import Procfs
from peerwatch_exporter.sources.kernel.kmsg import Kmsg

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from peerwatch_exporter.sources.host.access import HostAccess
    from peerwatch_exporter.sources.kernel.kmsg import KernelMessage

# The kernel cuts its own lines at 1 KiB; a longer one is no driver's.
_LINE_CHARACTERS = 1024
# As in ``deduplication`` and ``kmsg``.
_BURST_SECONDS = 5.0
_MAX_BURSTS = 1024
_MAX_UNREAD = 50_000


class KernelLog:
    """Reads the wanted messages since the last call, with when each was logged.

    Parameters
    ----------
    host
        For the log's path, the boot time and the clock.
    is_wanted
        Says from its text whether a message is kept.
    """

    def __init__(self, host: HostAccess, is_relevant: Callable[[str], bool]) -> None:
        self._clock = host.clock
        self._kmsg = Kmsg(host.paths.kmsg)
        self._procfs = Procfs(host.paths.procfs)
        self._is_relevant = is_relevant
        self._unread: list[KernelMessage] = []

    def read(self) -> list[tuple[str, float]]:
        """Return text and Unix time of the new messages; texts keep their line breaks.

        Raises
        ------
        NoData
            If there is no kernel log.
        OSError
            If the log or the boot time cannot be read; no message is lost by the latter.
        """
        self._unread += [entry for entry in self._kmsg.read() if self._is_relevant(entry.text)]
        del self._unread[:-_MAX_UNREAD]
        if not self._unread:
            return []
        now = self._clock()
        # May fail; the messages then wait for the next call.
        boot_time = self._procfs.boot_time()
        unread, self._unread = self._unread, []
        return [
            (entry.text, now if entry.boot_seconds is None else boot_time + entry.boot_seconds)
            for entry in unread
        ]


def lines_of(text: str) -> Iterator[str]:
    """Return the lines of a message, each cut at the kernel's own limit."""
    return (line[:_LINE_CHARACTERS] for line in text.splitlines())


class Bursts:
    """Distinguishes a new event from more lines of the same one: those within 5 s of its first.

    A fault logs a burst of lines (XID 13 one per GPC, TPC and SM; a broken NIC its whole state).
    """

    def __init__(self) -> None:
        self._starts: dict[Hashable, float] = {}

    def begins(self, key: Hashable, timestamp: float) -> bool:
        """Return whether the line is the first of its burst.

        A time before the burst's begins another one: the log started again.
        """
        start = self._starts.get(key)
        if start is not None and 0 <= timestamp - start < _BURST_SECONDS:
            return False
        self._starts.pop(key, None)
        self._starts[key] = timestamp
        if len(self._starts) > _MAX_BURSTS:
            # Dictionaries keep their order: the first is the one that began longest ago.
            del self._starts[next(iter(self._starts))]
        return True


class Admission:
    """Admits the first distinct keys up to a limit, so that no flood becomes a flood of series."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: set[Hashable] = set()

    def admits(self, key: Hashable) -> bool:
        """Return whether the key is among the first ones; once admitted, it stays so."""
        if key not in self._admitted and len(self._admitted) < self._limit:
            self._admitted.add(key)
        return key in self._admitted
