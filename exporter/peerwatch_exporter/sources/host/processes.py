"""The processes below a /proc root: one listing per scrape, details on demand.

Everything about a process can vanish between two reads. Reads of a process that is gone return
``None``; only a refusal by the kernel is an error.
"""

from __future__ import annotations

import heapq
import os
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.process_files import read_file
from peerwatch_exporter.sources.host.procfs import TICKS_PER_SECOND, GarbledFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

# A pid alone is used again; together with its start time it names one process for good.
ProcessKey = tuple[int, int]

# Forks, links to the root and the time of its last change.
_Counts = tuple[int, int, int]
# A process that changed, by pid; None: it is gone.
_Changes = dict[int, "Process | None"]
# The processes are listed again after this time, whatever the kernel counts: that some are hidden
# may change, and no process comes or goes by it. Chosen: once in a scrape interval of 15 s.
_LONGEST_UNLISTED_SECONDS = 10.0
# A process whose values do not change is read at growing intervals, up to this one: chosen, two
# scrape intervals of 15 s.
_LONGEST_REST_SECONDS = 30.0

_STATES = {
    "R": "running",
    "S": "sleeping",
    "I": "sleeping",
    "P": "sleeping",
    "W": "running",
    "D": "disk_sleep",
    "T": "stopped",
    # A debugger's doing: it lets go on what it has stopped.
    "t": "traced",
    "Z": "zombie",
    "X": "exited",
    "x": "exited",
}


@dataclass(frozen=True, slots=True)
class Process:
    """One process as its ``stat`` file shows it.

    CPU times cover all its threads, and the children that it has waited for.

    ``image`` is where its environment begins, which is another place after each exec; 0 if the
    kernel does not say, as for other users' processes.
    """

    pid: int
    name: str
    parent: int
    state: str
    user_seconds: float
    system_seconds: float
    threads: int
    start_ticks: int
    image: int = 0

    @property
    def key(self) -> ProcessKey:
        """The process's identity over time."""
        return self.pid, self.start_ticks

    @property
    def is_dead(self) -> bool:
        """Whether nothing of it runs; of a zombie with threads only the first has ended."""
        return self.state == "zombie" and self.threads <= 1

    @property
    def program(self) -> tuple[int, int, str]:
        """Another one after it executed another program, or took another name."""
        return self.start_ticks, self.image, self.name


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Memory of the process, and context switches of its main thread."""

    resident_bytes: int
    voluntary_switches: int
    involuntary_switches: int


@dataclass(frozen=True, slots=True)
class ProcessIo:
    """Bytes the process caused to be read from and written to storage."""

    read_bytes: int
    written_bytes: int


@dataclass(slots=True)
class _Seen:
    """What a process said last, for how long it has rested, and when it is asked again.

    Of what its ``stat`` file said only the hash is kept: a thousand of them would be a quarter of
    a MiB on every node.
    """

    content: int
    process: Process
    rest_seconds: float
    due: float


class ReadFile:
    """Somebody who wants to know which processes came, went or became another program."""

    def __init__(self) -> None:
        self.news: set[int] = set()


class ProcessTable:
    """Lists processes and reads their details.

    Who came and who went is seen at once: a thousand names are listed only if the kernel's counts
    of forks or of processes say that they are others. A process that sleeps is asked what it does
    less and less often, up to every 30 s, unless somebody watches it: most processes of
    a node are of no interest and do nothing. One that is about to hang was busy just before.

    Parameters
    ----------
    root
        The /proc root.
    monotonic
        Clock for the age of the listing.
    read
        How a file is read; tests hand in one that refuses.
    max_age_seconds
        A listing this young is used again, so that collectors of one second share it.
    forks
        Returns how many threads and processes were ever made on the machine; None: not known, so
        that every listing is made anew.
    """

    def __init__(
        self,
        root: Path,
        *,
        monotonic: Callable[[], float],
        read: Callable[[str], bytes] = read_file,
        max_age_seconds: float = 0.5,
        forks: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._root = str(root)
        self._monotonic = monotonic
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._forks = forks
        self._counted: _Counts | None = None
        self._list_at = 0.0
        self._lock = threading.Lock()
        self._listed_at: float | None = None
        self._names: list[str] = []
        self._listed: dict[int, Process] = {}
        self._children: dict[int, tuple[int, ...]] = {}
        self._seen: dict[int, _Seen] = {}
        self._due: list[tuple[float, int]] = []
        self._asked: set[int] = set()
        self._readers: weakref.WeakSet[ReadFile] = weakref.WeakSet()

    def snapshot(self) -> dict[int, Process]:
        """Return all processes by pid."""
        with self._lock:
            return self._fresh()

    def reader(self) -> ReadFile:
        """Return a reader to whom every process is new."""
        reader = ReadFile()
        with self._lock:
            reader.news.update(self._listed)
            self._readers.add(reader)
        return reader

    def news(self, reader: ReadFile) -> tuple[dict[int, Process], set[int]]:
        """Return all processes, and which of them are not as they were at the last call.

        Those are the ones that came, went, or have another name or program.
        """
        with self._lock:
            processes = self._fresh()
            news, reader.news = reader.news, set()
            return processes, news

    def children(self, pid: int) -> tuple[int, ...]:
        """Return the children of a process in the newest listing."""
        return self._children.get(pid, ())

    def watch(self, pids: Iterable[int]) -> None:
        """Look at these processes in the next listing, though they rest."""
        self._asked.update(pids)

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the environment the process was started with; ``None`` if it is gone."""
        content = self._content(pid, "environ")
        if content is None:
            return None
        pairs = (entry.partition("=") for entry in content.decode(errors="replace").split("\0"))
        return {name: value for name, equals, value in pairs if equals}

    def status(self, pid: int) -> ProcessStatus | None:
        """Return memory and context switches; ``None`` if the process is gone."""
        content = self._content(pid, "status")
        if not content:
            return None
        try:
            return ProcessStatus(
                # Kernel threads and zombies have no memory of their own: no VmRSS line.
                resident_bytes=int(_field(content, b"VmRSS:") or 0) * 1024,
                voluntary_switches=int(_field(content, b"voluntary_ctxt_switches:")),
                involuntary_switches=int(_field(content, b"nonvoluntary_ctxt_switches:")),
            )
        except ValueError as error:
            raise self._garbled(pid, "status", content) from error

    def io(self, pid: int) -> ProcessIo | None:
        """Return storage traffic; ``None`` if the process is gone."""
        content = self._content(pid, "io")
        if not content:
            return None
        try:
            return ProcessIo(
                int(_field(content, b"read_bytes:")), int(_field(content, b"write_bytes:"))
            )
        except ValueError as error:
            raise self._garbled(pid, "io", content) from error

    def exit_status(self, pid: int) -> int | None:
        """Return the status of a zombie, as of ``waitpid``; ``None`` where the kernel hides it."""
        content = self._content(pid, "stat")
        try:
            # The kernel shows a 0 to those who may not trace the process, and refuses them this.
            permitted = self.io(pid) is not None
        except PermissionError:
            permitted = False
        if not content:
            return None
        # Fields of proc(5) from the third on; the 52nd is exit_code.
        fields = content.rpartition(b")")[2].split()
        status = int(fields[49]) if len(fields) > 49 and fields[49].isdigit() else 0
        return status if permitted and fields[0] == b"Z" else None

    def run_delay_seconds(self, pid: int) -> float | None:
        """Return how long the main thread waited for a CPU; ``None`` if gone or not counted."""
        content = self._content(pid, "schedstat")
        if not content:
            return None
        try:
            return int(content.split()[1]) / 1e9
        except (IndexError, ValueError) as error:
            raise self._garbled(pid, "schedstat", content) from error

    def _fresh(self) -> dict[int, Process]:
        now = self._monotonic()
        if self._listed_at is None or now - self._listed_at > self._max_age_seconds:
            self._list(now)
            self._listed_at = now
        return self._listed

    def _list(self, now: float) -> None:
        """Bring the listing up to date, in a dictionary of its own if anything changed."""
        asked, self._asked = self._asked, set()
        changed: _Changes = {}
        counted = self._count()
        names = self._names
        if counted is None or counted != self._counted or now >= self._list_at:
            names = os.listdir(self._root)  # noqa: PTH208 - names only, hundreds per second
            self._list_at = now + _LONGEST_UNLISTED_SECONDS
        # Not believed until all of this has succeeded.
        self._counted = None
        to_read: set[int] = set()
        # The kernel lists them in the order of their pids: mostly the very same list.
        if names != self._names:
            gone = {int(name) for name in set(self._names).difference(names) if name.isdigit()}
            changed = dict.fromkeys(gone)
            to_read = {int(name) for name in set(names).difference(self._names) if name.isdigit()}
            # Their children have another parent now.
            asked = asked.union(*map(self.children, gone))
        to_read |= {pid for pid in asked if pid in self._seen and pid not in changed}
        while self._due and self._due[0][0] <= now:
            due, pid = heapq.heappop(self._due)
            seen = self._seen.get(pid)
            if seen is not None and seen.due == due and pid not in changed:
                to_read.add(pid)
        try:
            # Parents mostly first: what they take over from a child must not count twice.
            self._read_stats(sorted(to_read), now, changed)
        finally:
            # Also what was seen before a process that cannot be understood.
            if changed:
                self._apply(changed)
        # Who ended between listing and reading, or was not ready, is new the next time.
        unread = {str(pid) for pid in to_read if pid not in self._seen}
        self._names = [name for name in names if name not in unread] if unread else names
        self._counted = None if unread else counted

    def _count(self) -> _Counts | None:
        """Return what is another whenever a process came or went; None: nothing is known to be.

        Links to the root of /proc are the machine's processes. Who came and who went within a
        second leave their number as it was, but one of them was forked. In a directory of files,
        which have no forks, its time changes.
        """
        forks = self._forks()
        if forks is None:
            return None
        root = os.stat(self._root)  # noqa: PTH116 - each second
        return forks, root.st_nlink, root.st_mtime_ns

    def _read_stats(self, pids: Iterable[int], now: float, changed: _Changes) -> None:
        # Some hundred each second, so all in one loop.
        known = self._seen
        for pid in pids:
            content, seen = self._content(pid, "stat"), known.get(pid)
            if not content:
                if seen is not None:
                    changed[pid] = None
                continue
            if seen is None or hash(content) != seen.content:
                changed[pid] = process = self._process(pid, content)
                known[pid] = seen = _Seen(hash(content), process, 0.0, now)
            elif seen.rest_seconds < _LONGEST_REST_SECONDS:
                seen.rest_seconds = min(_LONGEST_REST_SECONDS, 2 * seen.rest_seconds or 1.0)
            # Not all of them in the same second.
            seen.due = now + seen.rest_seconds * (1 - pid % 8 / 16)
            heapq.heappush(self._due, (seen.due, pid))

    def _apply(self, changed: Mapping[int, Process | None]) -> None:
        listed = dict(self._listed)
        news = set()
        for pid, process in changed.items():
            old = listed.pop(pid, None)
            if process is None:
                self._seen.pop(pid, None)
            else:
                listed[pid] = process
            if old is None or process is None or old.program != process.program:
                news.add(pid)
            if old is None or process is None or old.parent != process.parent:
                self._move(pid, old, process)
        self._listed = listed
        for reader in self._readers:
            reader.news |= news

    def _move(self, pid: int, old: Process | None, new: Process | None) -> None:
        if old is not None:
            left = tuple(child for child in self.children(old.parent) if child != pid)
            self._children[old.parent] = left
            if not left:
                del self._children[old.parent]
        if new is not None:
            self._children[new.parent] = (*self.children(new.parent), pid)

    def _process(self, pid: int, content: bytes) -> Process:
        # The name stands in parentheses and may itself hold spaces and parentheses.
        head, _, rest = content.rpartition(b")")
        fields = rest.split()
        try:
            return Process(
                pid=pid,
                # Many have the same.
                name=sys.intern(head.partition(b"(")[2].decode(errors="replace")),
                parent=int(fields[1]),
                state=_STATES.get(fields[0].decode(), "sleeping"),
                user_seconds=(int(fields[11]) + int(fields[13])) / TICKS_PER_SECOND,
                system_seconds=(int(fields[12]) + int(fields[14])) / TICKS_PER_SECOND,
                threads=int(fields[17]),
                start_ticks=int(fields[19]),
                image=int(fields[47]) if len(fields) > 47 else 0,
            )
        except (IndexError, ValueError) as error:
            raise self._garbled(pid, "stat", content) from error

    def _content(self, pid: int, name: str) -> bytes | None:
        try:
            return self._read(f"{self._root}/{pid}/{name}")
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _garbled(self, pid: int, name: str, content: bytes) -> GarbledFileError:
        return GarbledFileError(f"{self._root}/{pid}/{name}", content)


def _field(content: bytes, name: bytes) -> bytes:
    """Return the number in the line that begins with a name; empty if there is no such line."""
    start = 0 if content.startswith(name) else content.find(b"\n" + name) + 1
    if not start and not content.startswith(name):
        return b""
    return content[start + len(name) : content.find(b"\n", start)].removesuffix(b" kB")
