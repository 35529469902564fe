"""What discovery finds: files that may be a job's log, and why others are not read."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from peerwatch_exporter.sources.logs.targets import Targets

Reason = Literal[
    "pipe",
    "socket",
    "terminal",
    "not_a_file",
    "permission_denied",
    "not_found",
    "unreadable",
    "hung",
    "too_many",
]
# In the order of the documentation; those of outputs that no file holds are no failure.
NOT_IN_FILES: frozenset[Reason] = frozenset({"pipe", "socket", "terminal", "not_a_file"})


@dataclass(frozen=True, slots=True)
class Claim:
    """A file, and whose it is as far as one provider knows.

    Parameters
    ----------
    path
        What to open.
    group
        What hangs together with it: a mount, a directory.
    provider
        Who found it.
    status
        What ``stat`` says of it.
    job_id
        The job; empty if it may be of several.
    rank
        The rank that it is the output of; None if it is of no single one.
    names_rank
        Whether its path is of this rank alone, so that no other node's rank writes it too.
    only_here
        Whether nobody but a launcher of this node holds it, so that no other node's exporter
        finds it.
    """

    path: str
    group: str
    provider: str
    status: os.stat_result
    job_id: str
    rank: int | None = None
    names_rank: bool = False
    only_here: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """The file's identity."""
        return self.status.st_dev, self.status.st_ino


class Unread(NamedTuple):
    """An output that is not read."""

    provider: str
    reason: Reason


class Provider(Protocol):
    """Finds logs in one kind of place."""

    name: str

    def find(self, targets: Targets, guard: Guard) -> Iterator[Claim | Unread]:
        """Yield the files of these targets that exist now."""


class HungError(OSError):
    """Nothing of a group is touched: it hung a moment ago."""


class Guard(Protocol):
    """Notes what is about to be touched, so that somebody else can see what hangs."""

    def enter(self, group: str) -> None:
        """Note that something of a group is touched from now on.

        Raises
        ------
        HungError
            If the group is one of those that hung.
        """

    def leave(self) -> None:
        """Note that nothing is touched any more."""


class MarkedGuard:
    """Marks groups in memory that the parent reads.

    Parameters
    ----------
    memory
        The number of entries, which shows progress, in 8 bytes; the length of the group's name in
        4; the name. A length of 0: nothing is touched.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._entries = 0
        self._group = ""
        self.hung: Collection[str] = ()

    def enter(self, group: str) -> None:
        """Mark a group."""
        if group in self.hung:
            raise HungError(errno.ETIMEDOUT, "hung", group)
        self._entries += 1
        memory = self._memory
        if group != self._group:
            name = group.encode(errors="replace")[: len(memory) - 12]
            memory[8:12] = bytes(4)
            memory[12 : 12 + len(name)] = name
            memory[8:12] = len(name).to_bytes(4, "little")
            self._group = group
        memory[:8] = self._entries.to_bytes(8, "little")

    def leave(self) -> None:
        """Mark that nothing is touched."""
        self._memory[8:12] = bytes(4)
        self._group = ""


def read_mark(memory: memoryview | bytes) -> tuple[int, str]:
    """Return how many entries there were, and the group that is touched now; empty if none."""
    length = int.from_bytes(memory[8:12], "little")
    return int.from_bytes(memory[:8], "little"), bytes(memory[12 : 12 + length]).decode(
        "utf-8", "replace"
    )


def reason_of(error: OSError) -> Reason:
    """Return why a file cannot be read."""
    if isinstance(error, HungError):
        return "hung"
    if isinstance(error, PermissionError):
        return "permission_denied"
    if isinstance(error, FileNotFoundError | NotADirectoryError | ProcessLookupError):
        return "not_found"
    return "unreadable"


def status_of(path: str) -> os.stat_result | Reason:
    """Return what ``stat`` says of a file, or why it is not read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - each second
    except OSError as error:
        return reason_of(error)
    return kind_of(status) or status


def kind_of(status: os.stat_result) -> Reason | None:
    """Return why a file of this kind is not read; None for regular files."""
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISFIFO(mode):
        return "pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "terminal" if stat.S_ISCHR(mode) else "not_a_file"
