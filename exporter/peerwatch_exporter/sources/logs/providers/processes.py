"""What ranks, launchers and batch scripts have as standard output and error.

This finds the output files of every scheduler without asking it, Slurm's among them: opening
``/proc/<pid>/fd/1`` opens the very file that the process writes, in whatever container, renamed or
deleted. ``srun`` gives ranks pipes and writes the file itself, on the node of the batch script.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.files.whole_file import read_whole
from peerwatch_exporter.sources.logs.found import Claim, Unread, kind_of, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peerwatch_exporter.sources.logs.found import Guard, Reason
    from peerwatch_exporter.sources.logs.targets import Targets

_STREAMS = (1, 2)  # standard output and error
# Below /dev, but programs keep ordinary files there; all else there needs no look each second.
_IN_MEMORY = "/dev/shm/"  # noqa: S108 - a name to compare with
_MOUNT = re.compile(rb"^mnt_id:\s*(\d+)$", re.MULTILINE)


class ProcessOutputs:
    """Finds the files behind descriptors 1 and 2.

    Parameters
    ----------
    procfs
        The /proc root.
    """

    name = "process"

    def __init__(self, procfs: Path) -> None:
        self._procfs = str(procfs)

    def find(self, targets: Targets, guard: Guard) -> Iterator[Claim | Unread]:
        """Yield the outputs of ranks, then of the processes around them."""
        for rank in targets.ranks:
            yield from self._outputs(rank.pid, rank.job_id, rank.rank, guard)
        for holder in targets.holders:
            yield from self._outputs(holder.pid, holder.job_id, None, guard)

    def _outputs(
        self, pid: int, job_id: str, rank: int | None, guard: Guard
    ) -> Iterator[Claim | Unread]:
        for stream in _STREAMS:
            try:
                found = self._output(pid, stream, job_id, rank, guard)
            except (FileNotFoundError, ProcessLookupError):
                # The process ended, or closed the stream.
                continue
            except OSError as error:
                yield Unread(self.name, reason_of(error))
                continue
            yield found if isinstance(found, Claim) else Unread(self.name, found)

    def _output(
        self, pid: int, stream: int, job_id: str, rank: int | None, guard: Guard
    ) -> Claim | Reason:
        path = f"{self._procfs}/{pid}/fd/{stream}"
        # Says what it is without touching the file.
        target = os.readlink(path)  # noqa: PTH115 - each second
        if not target.startswith("/"):
            return "socket" if target.startswith("socket:") else "pipe"
        if target.startswith("/dev/") and not target.startswith(_IN_MEMORY):
            return "terminal"
        mount = _MOUNT.search(read_whole(f"{self._procfs}/{pid}/fdinfo/{stream}"))
        group = f"mount {mount[1].decode()}" if mount else target.rpartition("/")[0]
        guard.enter(group)
        status = os.stat(path)  # noqa: PTH116 - each second
        refusal = kind_of(status)
        if refusal is not None:
            return refusal
        numbers = re.findall(r"\d+", target.rpartition("/")[2])
        return Claim(
            path,
            group,
            self.name,
            status,
            job_id,
            rank,
            names_rank=rank is not None
            and str(rank) in {number.lstrip("0") or "0" for number in numbers},
            only_here=rank is None,
        )
