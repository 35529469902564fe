"""What NCCL's Inspector plugin writes: duration and bandwidth of each finished collective.

A file per process, ``<hostname>-pid<pid>.log``, with one JSON object a line, in one of two forms:
with and without ``comm_name`` and ``coll_timing_source``. Only finished collectives are written: it
shows no hang. The files only grow, or are truncated, or are replaced.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.periodic import Periodic
from peerwatch_exporter.sources.collectives.process_ranks import group_of
from peerwatch_exporter.sources.collectives.telemetry import (
    GroupInfo,
    GroupTelemetry,
    RankReport,
    Totals,
)
from peerwatch_exporter.sources.collectives.volume import bus_factor, collective_name

if TYPE_CHECKING:
    from pathlib import Path

    from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

SOURCE = "inspector"
_NAME = re.compile(r"(?P<host>.+)-pid(?P<pid>[1-9]\d{0,9})\.log")
# 20,000 collectives with 400 bytes each; of a longer backlog only the end is read.
_MOST_BYTES_PER_ROUND = 8 * 2**20
# A line is a collective. Chosen: a file for each process, up to eight for each of 16 GPUs, and
# twice as many communicators; numbers are exact in a double.
_LONGEST_LINE_BYTES = 1 << 20
_MOST_FILES = 128
_MOST_COMMUNICATORS = 256
_LARGEST = 2**53


@dataclass(slots=True)
class _Communicator:
    """What one process wrote of one communicator."""

    rank: int
    size: int
    totals: dict[str, Totals] = field(default_factory=dict)


@dataclass(slots=True)
class _File:
    """One file: how far it was read, and what it said."""

    inode: int = 0
    offset: int = 0
    rest: bytes = b""
    communicators: dict[str, _Communicator] = field(default_factory=dict)
    garbled: int = 0


Processes = Mapping[int, Mapping[str, _Communicator]]


class InspectorFiles:
    """Follows the files of a directory.

    Parameters
    ----------
    directory
        NCCL_INSPECTOR_DUMP_DIR.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _File] = {}

    def read(self) -> tuple[Processes, int]:
        """Read what is new; return totals by pid and communicator, and the unusable lines.

        Raises
        ------
        OSError
            If the directory cannot be read.
        """
        names: dict[str, int] = {}
        own = {socket.gethostname(), socket.gethostname().partition(".")[0]}
        for name in sorted(os.listdir(self._directory)):  # noqa: PTH208 - names are all that is needed
            match = _NAME.fullmatch(name)
            # A shared directory has those of all hosts.
            if match is not None and match["host"] in own and len(names) < _MOST_FILES:
                names[name] = int(match["pid"])
        for name in self._files.keys() - names.keys():
            del self._files[name]
        for name in names:
            try:
                self._follow(self._files.setdefault(name, _File()), f"{self._directory}/{name}")
            except FileNotFoundError:
                continue
        processes = {
            pid: {
                key: replace(each, totals={k: replace(v) for k, v in each.totals.items()})
                for key, each in self._files[name].communicators.items()
            }
            for name, pid in names.items()
        }
        return processes, sum(file.garbled for file in self._files.values())

    def _follow(self, file: _File, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_ino != file.inode or status.st_size < file.offset:
                file.inode, file.offset, file.rest = status.st_ino, 0, b""
            if status.st_size - file.offset > _MOST_BYTES_PER_ROUND:
                file.offset, file.rest = status.st_size - _MOST_BYTES_PER_ROUND, b"-"
            data = os.pread(descriptor, _MOST_BYTES_PER_ROUND, file.offset)
        finally:
            os.close(descriptor)
        file.offset += len(data)
        *lines, file.rest = (file.rest + data).split(b"\n")
        if len(file.rest) > _LONGEST_LINE_BYTES:
            file.rest = b"-"
        for line in lines:
            # Behind a gap in the reading stands the rest of a line.
            if line and not line.startswith(b"-"):
                file.garbled += not _take(file.communicators, line)


class Inspector:
    """The Inspector's files as a source.

    Parameters
    ----------
    directory
        Where they are.
    interval_seconds
        How often they are read.
    clock
        Unix time.
    """

    def __init__(
        self, directory: Path, interval_seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        files = InspectorFiles(directory)
        self._periodic = Periodic("collectives-inspector", interval_seconds, files.read)

    def read(
        self, ranks: Mapping[int, KnownRank], infos: Mapping[str, Sequence[GroupInfo]]
    ) -> tuple[list[RankReport], list[Exception]]:
        """Return what was read last; waits for nobody."""
        newest = self._periodic.newest()
        if newest is None:
            return [], []
        if isinstance(newest, Exception):
            return [], [_unreadable(newest)]
        processes, garbled = newest
        problems: list[Exception] = []
        if garbled:
            detail = f"{garbled} lines of NCCL Inspector are no finished collective"
            problems.append(CollectiveSourceError("inspector_garbled", detail))
        return report_inspector(processes, self._clock(), ranks, infos), problems

    def close(self) -> None:
        """End the thread."""
        self._periodic.close()


def report_inspector(
    processes: Processes,
    now: float,
    ranks: Mapping[int, KnownRank],
    infos: Mapping[str, Sequence[GroupInfo]],
) -> list[RankReport]:
    """Return what the files say of this node's ranks."""
    reports = []
    for pid, communicators in processes.items():
        rank = ranks.get(pid)
        if rank is None:
            continue
        groups = []
        for name, each in communicators.items():
            info = group_of({each.rank: rank.rank}, each.size, infos.get(rank.job_id, ()))
            label = f"nccl-{name.removeprefix('0x')}" if info is None else info.name
            groups.append(GroupTelemetry(label, totals=each.totals))
        reports.append(RankReport(rank.job_id, rank.rank, SOURCE, None, now, tuple(groups)))
    return reports


def _take(communicators: dict[str, _Communicator], line: bytes) -> bool:
    """Count a line; return False if it is no finished collective."""
    try:
        record = json.loads(line)
        header = record["header"]
        performance = record.get("coll_perf") or record["p2p_perf"]
        kind = "coll" if "coll" in performance else "p2p"
        name, rank, size = str(header["id"])[:40], header["rank"], header["n_ranks"]
        moved = performance[f"{kind}_msg_size_bytes"]
        microseconds = performance[f"{kind}_exec_time_us"]
        collective = collective_name(str(performance[kind])[:40])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    numbers = (rank, size, moved, microseconds)
    if not all(isinstance(n, int | float) and 0 <= n < _LARGEST for n in numbers):
        return False
    if not isinstance(rank, int) or not isinstance(size, int) or rank >= size:
        return False
    if name not in communicators and len(communicators) >= _MOST_COMMUNICATORS:
        return False
    each = communicators.setdefault(name, _Communicator(rank, size))
    totals = each.totals.setdefault(collective, Totals(0, 0, 0, 0, None))
    totals.launched += 1
    totals.completed = (totals.completed or 0) + 1
    totals.seconds = (totals.seconds or 0) + microseconds / 1e6
    totals.size = (totals.size or 0) + moved
    factor = bus_factor(collective, 2 if kind == "p2p" else size)
    if factor is not None:
        totals.bus = (totals.bus or 0) + moved * factor
    return True


def _unreadable(error: Exception) -> CollectiveSourceError:
    if isinstance(error, PermissionError):
        return CollectiveSourceError("permission_denied", f"NCCL Inspector's files: {error}")
    return CollectiveSourceError("inspector_unreadable", f"NCCL Inspector's files: {error}")
