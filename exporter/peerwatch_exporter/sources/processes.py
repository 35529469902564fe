"""The processes below a /proc root: one listing per scrape, details on demand.

Everything about a process can vanish between two reads. Reads of a process that is gone return
``None``; only a refusal by the kernel is an error.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.procfs import TICKS_PER_SECOND, GarbledFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A pid alone is used again; together with its start time it names one process for good.
ProcessKey = tuple[int, int]

_READ_BYTES = 4096
# A process that says the same again and again is asked at growing intervals, up to this one.
_LONGEST_REST_SECONDS = 8.0

_STATES = {
    "R": "running",
    "S": "sleeping",
    "I": "sleeping",
    "P": "sleeping",
    "W": "running",
    "D": "disk_sleep",
    "T": "stopped",
    "t": "stopped",
    "Z": "zombie",
    "X": "exited",
    "x": "exited",
}


@dataclass(frozen=True, slots=True)
class Process:
    """One process as its ``stat`` file shows it; CPU times cover all its threads."""

    pid: int
    name: str
    parent: int
    state: str
    user_seconds: float
    system_seconds: float
    threads: int
    start_ticks: int

    @property
    def key(self) -> ProcessKey:
        """The process's identity over time."""
        return self.pid, self.start_ticks


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


def read_file(path: str) -> bytes:
    """Return a file's content; a short read is its end, as it is with every file of a process."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _READ_BYTES)
        if len(content) < _READ_BYTES:
            return content
        parts = [content]
        while content:
            content = os.read(descriptor, 16 * _READ_BYTES)
            parts.append(content)
        return b"".join(parts)
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _Seen:
    """What a process said last, for how long it has rested, and when it is asked again."""

    content: bytes
    process: Process
    rest_seconds: float
    due: float


class ProcessTable:
    """Lists processes and reads their details.

    Who came and who went is seen in every listing. A process that sleeps is asked what it does
    less and less often, up to every 8 s, unless somebody asks for its details: most processes of
    a node are of no interest and do nothing.

    Parameters
    ----------
    root
        The /proc root.
    monotonic
        Clock for the age of the listing.
    read
        How a file is read; tests hand in one that refuses.
    max_age_seconds
        A listing this young is used again, so that collectors of one scrape share it.
    """

    def __init__(
        self,
        root: Path,
        *,
        monotonic: Callable[[], float],
        read: Callable[[str], bytes] = read_file,
        max_age_seconds: float = 0.1,
    ) -> None:
        self._root = str(root)
        self._monotonic = monotonic
        self._read = read
        self._max_age_seconds = max_age_seconds
        self._lock = threading.Lock()
        self._listed_at: float | None = None
        self._listed: dict[int, Process] = {}
        self._seen: dict[int, _Seen] = {}
        self._asked: set[int] = set()

    def snapshot(self) -> dict[int, Process]:
        """Return all processes by pid."""
        with self._lock:
            now = self._monotonic()
            if self._listed_at is None or now - self._listed_at > self._max_age_seconds:
                self._listed = self._list(now)
                self._listed_at = now
            return self._listed

    def environment(self, pid: int) -> dict[str, str] | None:
        """Return the environment the process was started with; ``None`` if it is gone."""
        content = self._content(pid, "environ")
        if content is None:
            return None
        pairs = (entry.partition("=") for entry in content.decode(errors="replace").split("\0"))
        return {name: value for name, equals, value in pairs if equals}

    def status(self, pid: int) -> ProcessStatus | None:
        """Return memory and context switches; ``None`` if the process is gone."""
        self._asked.add(pid)
        fields = self._fields(pid, "status")
        if fields is None:
            return None
        try:
            # Kernel threads and zombies have no memory of their own: no VmRSS line.
            return ProcessStatus(
                resident_bytes=int(fields.get("VmRSS", "0 kB").split()[0]) * 1024,
                voluntary_switches=int(fields["voluntary_ctxt_switches"]),
                involuntary_switches=int(fields["nonvoluntary_ctxt_switches"]),
            )
        except (KeyError, ValueError, IndexError) as error:
            raise self._garbled(pid, "status", fields) from error

    def io(self, pid: int) -> ProcessIo | None:
        """Return storage traffic; ``None`` if the process is gone."""
        self._asked.add(pid)
        fields = self._fields(pid, "io")
        if fields is None:
            return None
        try:
            return ProcessIo(int(fields["read_bytes"]), int(fields["write_bytes"]))
        except (KeyError, ValueError) as error:
            raise self._garbled(pid, "io", fields) from error

    def run_delay_seconds(self, pid: int) -> float | None:
        """Return how long the main thread waited for a CPU; ``None`` if gone or not counted."""
        content = self._content(pid, "schedstat")
        if not content:
            return None
        try:
            return int(content.split()[1]) / 1e9
        except (IndexError, ValueError) as error:
            text = content.decode(errors="replace")
            raise self._garbled(pid, "schedstat", text) from error

    def _list(self, now: float) -> dict[int, Process]:
        processes = {}
        seen = {}
        asked, self._asked = self._asked, set()
        for name in os.listdir(self._root):  # noqa: PTH208 - names only, hundreds per second
            if name.isdigit():
                pid = int(name)
                one = self._seen.get(pid)
                if one is None or now >= one.due or pid in asked:
                    one = self._look(pid, one, now)
                if one is not None:
                    seen[pid] = one
                    processes[pid] = one.process
        self._seen = seen
        return processes

    def _look(self, pid: int, before: _Seen | None, now: float) -> _Seen | None:
        content = self._content(pid, "stat")
        if not content:
            return None
        if before is None or content != before.content:
            return _Seen(content, self._process(pid, content), 0.0, now)
        before.rest_seconds = min(_LONGEST_REST_SECONDS, 2 * before.rest_seconds or 1.0)
        # Not all of them in the same second.
        before.due = now + before.rest_seconds * (1 - pid % 8 / 16)
        return before

    def _process(self, pid: int, content: bytes) -> Process:
        # The name stands in parentheses and may itself hold spaces and parentheses.
        head, _, rest = content.rpartition(b")")
        fields = rest.split()
        try:
            return Process(
                pid=pid,
                name=head.partition(b"(")[2].decode(errors="replace"),
                parent=int(fields[1]),
                state=_STATES.get(fields[0].decode(), "sleeping"),
                user_seconds=int(fields[11]) / TICKS_PER_SECOND,
                system_seconds=int(fields[12]) / TICKS_PER_SECOND,
                threads=int(fields[17]),
                start_ticks=int(fields[19]),
            )
        except (IndexError, ValueError) as error:
            raise self._garbled(pid, "stat", content.decode(errors="replace")) from error

    def _fields(self, pid: int, name: str) -> dict[str, str] | None:
        content = self._content(pid, name)
        if not content:
            return None
        pairs = (line.partition(":") for line in content.decode(errors="replace").splitlines())
        return {key: value.strip() for key, _, value in pairs}

    def _content(self, pid: int, name: str) -> bytes | None:
        try:
            return self._read(f"{self._root}/{pid}/{name}")
        except (FileNotFoundError, ProcessLookupError):
            return None

    def _garbled(self, pid: int, name: str, content: object) -> GarbledFileError:
        return GarbledFileError(f"{self._root}/{pid}/{name}", str(content))
