"""Lets the exporter read torch's Flight Recorder from outside, and says who is in which group.

Once ``torch.distributed`` is initialised, torch's own worker server answers on the unix socket
``rank-<rank>.sock``; ``rank-<rank>.groups.json`` holds the members of each process group, and why
there is no socket if there is none. All of it happens in the heartbeat's thread and in torch's
server: nothing is added to a collective.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

# Set to 0 to leave the recorder alone.
SWITCH_VARIABLE = "PEERWATCH_COLLECTIVES"
# Either is torch's own name for the size of the recorder's ring, the second one the older.
RING_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
# Reading the ring costs in proportion to its size: 5 to 10 ms of CPU time for 500 collectives, 28
# for torch's own 2,000 (docs/benchmarks.md). Read every 3 s, 512 are enough for 170 a second.
RING_ENTRIES = 512
# Linux' limit for the path of a unix socket, with the byte that ends it.
LONGEST_SOCKET_PATH = 107


class Recorder:
    """What this process offers the exporter about its collectives.

    Parameters
    ----------
    directory
        Where socket and file are made: that of the heartbeats.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rank: int | None = None
        self._server: Any = None
        self._reason = ""
        self._written: object = None
        if not any(os.environ.get(name) for name in RING_VARIABLES):
            # Read by torch when the first process group is made.
            os.environ[RING_VARIABLES[0]] = str(RING_ENTRIES)

    def update(self, rank: int) -> None:
        """Start the server once, and write the groups whenever there are others."""
        if rank != self._rank:
            self.end(keep_files=False)
            self._rank = rank
            self._serve(rank)
        groups = self._groups()
        if groups != self._written:
            self._write(rank, groups)
            self._written = groups

    def end(self, *, keep_files: bool) -> None:
        """Stop the server; leave its files, as the mark of a rank that crashed, or remove them."""
        if self._server is not None:
            self._server.shutdown()
        self._server = None
        self._written = None
        if self._rank is not None and not keep_files:
            for path in self._paths(self._rank):
                path.unlink(missing_ok=True)

    def _paths(self, rank: int) -> tuple[Path, Path]:
        name = f"rank-{rank}"
        return self._directory / f"{name}.sock", self._directory / f"{name}.groups.json"

    def _serve(self, rank: int) -> None:
        path = self._paths(rank)[0]
        try:
            torch = importlib.import_module("torch._C._distributed_c10d")
            make = torch._WorkerServer  # noqa: SLF001 - torch has no public one
            if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
                raise OSError(
                    f"the path {path} is longer than the {LONGEST_SOCKET_PATH} bytes that a unix "
                    "socket's may have"
                )
            path.unlink(missing_ok=True)  # left by a rank that was killed
            self._server = make(str(path))
            # Who made the directory so gives its group to what is made in it: the exporter's.
            if self._directory.stat().st_mode & stat.S_ISGID:
                path.chmod(0o770)
        except Exception as error:
            # torch has the worker server from 2.4 on, as a private name that may go again.
            self._reason = f"{type(error).__name__}: {error}"[:300]
            return
        # A child forked from this process would wait for ever, in the server's destructor, for a
        # thread that it does not have. So the destructor never runs.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))

    def _write(self, rank: int, groups: list[dict[str, str]]) -> None:
        document = {
            "rank": rank,
            "pid": os.getpid(),
            "time": time.time(),
            "torch": str(getattr(sys.modules.get("torch"), "__version__", "")),
            "unavailable": self._reason,
            "groups": groups,
        }
        temporary = self._directory / f".rank-{rank}.groups.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(self._paths(rank)[1])

    def _groups(self) -> list[dict[str, str]]:
        try:
            return _groups()
        except Exception as error:
            self._reason = self._reason or f"groups: {type(error).__name__}: {error}"[:300]
            return []


def start(directory: Path) -> Recorder | None:
    """Return the recorder of this process; None if it is switched off or cannot be made."""
    if os.environ.get(SWITCH_VARIABLE) == "0":
        return None
    with suppress(Exception):
        return Recorder(directory)
    return None


def ranges(members: list[int]) -> str:
    """Return ranks as in Slurm's notation: ``0-3,8``, and ``0-28:4`` for every fourth."""
    parts = []
    rest = sorted(members)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        length = 1
        while length < len(rest) and rest[length] == rest[0] + length * step:
            length += 1
        # A stride pays from three ranks on.
        if step > 1 and length == 2:
            length = 1
        first, last = rest[0], rest[length - 1]
        text = str(first) if length == 1 else f"{first}-{last}"
        parts.append(text if step == 1 or length == 1 else f"{text}:{step}")
        rest = rest[length:]
    return ",".join(parts)


def _groups() -> list[dict[str, str]]:
    """Return name, description and members of the process groups this process is in."""
    distributed = sys.modules["torch.distributed.distributed_c10d"]
    world = distributed._world  # noqa: SLF001 - torch has no public list of its groups
    found = []
    # A copy: the training thread may be making another one.
    for group, name in list(world.pg_names.items()):
        members = distributed.get_process_group_ranks(group)
        description = str(getattr(group, "group_desc", ""))
        found.append(
            {
                "name": str(name),
                "description": "" if description == "undefined" else description,
                "members": ranges(list(members)),
            }
        )
    return found
