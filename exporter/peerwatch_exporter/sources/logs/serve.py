"""The process that reads logs: told what to read by its parent, it reports once a second."""

from __future__ import annotations

import contextlib
import json
import mmap
import resource
import select
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_common.errors import ConfigError
from peerwatch_common.memory import search_rarely
from peerwatch_common.signatures.matcher import MatchTable
from peerwatch_common.signatures.signature_set import load_signatures
from peerwatch_exporter.errors import NoData, error_class
from peerwatch_exporter.sources.host.access import HostAccess, Paths
from peerwatch_exporter.sources.logs.agreed import MARK_BYTES, LogSettings
from peerwatch_exporter.sources.logs.follower import Follower
from peerwatch_exporter.sources.logs.found import MarkedGuard
from peerwatch_exporter.sources.logs.kernel import KernelEvents
from peerwatch_exporter.sources.logs.owners import FileSystems
from peerwatch_exporter.sources.logs.providers.paths import ConfiguredPaths
from peerwatch_exporter.sources.logs.providers.pods import PodLogs
from peerwatch_exporter.sources.logs.providers.processes import ProcessOutputs
from peerwatch_exporter.sources.logs.providers.torchrun import TorchrunLogs
from peerwatch_exporter.sources.logs.search import Search
from peerwatch_exporter.sources.logs.search_schedule import SearchSchedule, rest_seconds
from peerwatch_exporter.sources.logs.tail import Position
from peerwatch_exporter.sources.logs.tally import RanksHere, Tally
from peerwatch_exporter.sources.logs.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_common.signatures.event import Event
    from peerwatch_exporter.sources.logs.found import Guard, Provider, Reason
    from peerwatch_exporter.sources.logs.owners import Owner

# A report for each second's snapshot, with what two looks found.
_TICK_SECONDS = 0.5
_REPORT_SECONDS = 1.0
_READ_BYTES = 65536
# Besides the logs: channel, memory, kernel log, what a search opens.
_OTHER_DESCRIPTORS = 32
REFUSED = 3  # exit status; 1 and 2 are Python's own


def providers(settings: LogSettings) -> list[Provider]:
    """Return where to look."""
    procfs = Path(settings.procfs)
    found: list[Provider] = []
    if settings.processes:
        found += [ProcessOutputs(procfs), TorchrunLogs(procfs)]
    if settings.pods_directory is not None:
        found.append(PodLogs(Path(settings.pods_directory)))
    if settings.paths:
        found.append(ConfiguredPaths(settings.paths, settings.max_files))
    return found


class _ParentGoneError(Exception):
    """The other end of the channel was closed."""


def serve(channel: socket.socket, memory: int) -> int:
    """Read logs until the parent goes; return the exit status.

    Parameters
    ----------
    channel
        To the parent.
    memory
        Descriptor of the memory that says what is touched.
    """
    try:
        server = LogServer(channel, MarkedGuard(memoryview(mmap.mmap(memory, MARK_BYTES))))
    except ConfigError as error:
        _send(channel, {"refused": "; ".join(error.mistakes)})
        return REFUSED
    except _ParentGoneError:
        return 0
    search_rarely()
    try:
        while True:
            server.step()
    except (_ParentGoneError, BrokenPipeError, ConnectionResetError):
        return 0


class LogServer:
    """One process from its settings to its end.

    Parameters
    ----------
    channel, guard
        To the parent, and where is noted what is touched.

    Raises
    ------
    ConfigError
        If the signatures have mistakes.
    """

    def __init__(self, channel: socket.socket, guard: MarkedGuard) -> None:
        self._channel = channel
        self._guard = guard
        self._waiting = b""
        self._readable = select.poll()
        self._readable.register(channel, select.POLLIN)
        self._targets = Targets()
        self._ranks = RanksHere({}, ())
        self._schedule = SearchSchedule()
        self._unread: dict[Reason, int] = {}
        self._kernel_error: str | None = None
        first = self._first()
        settings = LogSettings(**first["settings"])
        signatures = load_signatures([Path(path) for path in settings.signatures])
        self._follower = _follower(settings, MatchTable(signatures.of_log("job")), guard)
        self._search = _search(settings, self._follower, guard, first["positions"])
        self._kernel = _kernel(settings, MatchTable(signatures.of_log("kernel")))
        self._tally = Tally(keeps_texts=settings.first_error)
        self._report_at = 0.0
        self._has_searched = False

    def step(self) -> None:
        """Do what is due, and wait for the next tick."""
        now, cpu = time.monotonic(), time.process_time()
        if now >= self._schedule.due:
            self._unread = self._search.run(self._targets, time.time())
            self._schedule.searched(time.monotonic(), time.process_time() - cpu)
            self._has_searched = True
        for event, owner, written in self._events():
            self._tally.add(event, owner, self._ranks, written)
        if now >= self._report_at:
            self._report()
            self._report_at = now + _REPORT_SECONDS
        rest = rest_seconds(_TICK_SECONDS, time.monotonic() - now, time.process_time() - cpu)
        if self._readable.poll(rest * 1000):
            for message in self._received():
                self._take(message)

    def _events(self) -> Iterator[tuple[Event, Owner, float]]:
        yield from self._follower.tick()
        if self._kernel is None:
            return
        try:
            yield from self._kernel.read()
            self._kernel_error = None
        except NoData:
            self._kernel_error = "source_missing"
        except OSError as error:
            self._kernel_error = error_class(error)

    def _first(self) -> dict[str, Any]:
        while True:
            messages = self._received()
            if messages:
                for message in messages[1:]:
                    self._take(message)
                return messages[0]

    def _take(self, message: dict[str, Any]) -> None:
        self._guard.hung = frozenset(message["hung"])
        targets = Targets.from_data(message["targets"])
        if targets == self._targets:
            return
        self._targets = targets
        self._ranks = RanksHere(
            {
                (each.job_id, each.local_rank): each.rank
                for each in targets.ranks
                if each.local_rank is not None
            },
            frozenset((each.job_id, each.rank) for each in targets.ranks),
        )
        # A rank that fails at once is gone when the next search would come.
        self._schedule.hurry()

    def _report(self) -> None:
        amounts = self._follower.amounts
        files: dict[str, int] = {}
        for followed in self._follower.files.values():
            files[followed.provider] = files.get(followed.provider, 0) + 1
        _send(
            self._channel,
            {
                **self._tally.take(),
                "read": amounts.read,
                "skipped": amounts.skipped,
                "files": files,
                "unread": self._unread,
                "kernel_error": self._kernel_error,
                "searched": self._has_searched,
                "positions": [
                    [*key, position.offset, position.overlap.hex()]
                    for key, position in self._search.remember().items()
                ],
            },
        )
        amounts.read, amounts.skipped = {}, {}

    def _received(self) -> list[dict[str, Any]]:
        data = self._channel.recv(_READ_BYTES)
        if not data:
            raise _ParentGoneError
        *lines, self._waiting = (self._waiting + data).split(b"\n")
        return [json.loads(line) for line in lines]


def _follower(settings: LogSettings, table: MatchTable, guard: Guard) -> Follower:
    most = settings.max_files
    # A sandbox may forbid it; then fewer files are followed.
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = most + _OTHER_DESCRIPTORS
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Follower(
        table,
        guard,
        max_files=max(1, min(most, soft - _OTHER_DESCRIPTORS)),
        max_bytes_per_second=settings.max_bytes_per_second,
        clock=time.time,
        monotonic=time.monotonic,
    )


def _search(
    settings: LogSettings, follower: Follower, guard: Guard, positions: list[list[Any]]
) -> Search:
    known = {
        (device, inode): Position(offset, bytes.fromhex(overlap))
        for device, inode, offset, overlap in positions
    }
    return Search(
        providers(settings),
        follower,
        FileSystems(Path(settings.procfs), time.monotonic),
        guard,
        tail_bytes=settings.tail_bytes,
        started=settings.started,
        positions=known,
    )


def _kernel(settings: LogSettings, table: MatchTable) -> KernelEvents | None:
    if settings.kmsg is None:
        return None
    procfs = Path(settings.procfs)
    # Of the three only two are read.
    paths = Paths(procfs=procfs, sysfs=procfs, kmsg=Path(settings.kmsg))
    return KernelEvents(HostAccess(paths), table)


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
