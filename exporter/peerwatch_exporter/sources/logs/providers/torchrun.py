"""torchrun's log directories: ``<log dir>/<run>/attempt_<n>/<local rank>/{stdout,stderr}.log``.

Every rank has its own directory in its environment (``TORCHELASTIC_ERROR_FILE``). A rank that ends
within its first second is found through the directory of the run, which an earlier one named, or
``--log-dir`` on the command line of torchrun itself.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.files.whole_file import read_whole
from peerwatch_exporter.sources.logs.found import Claim, Unread, reason_of, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peerwatch_exporter.sources.logs.found import Guard
    from peerwatch_exporter.sources.logs.targets import HolderTarget, Targets

_IN_RUN = "attempt_*/[0-9]*/std*.log"
_LOG = re.compile(r"/attempt_\d+/(\d{1,6})/std(?:out|err)\.log$")
_OPTION = re.compile(rb"--log[-_]dir(?:=|\0)([^\0]+)")
_MOST_FILES = 4096  # two each of 16 ranks in 128 attempts


class TorchrunLogs:
    """Finds the files of all attempts of a run.

    Parameters
    ----------
    procfs
        The /proc root, through which a container's files are reached.
    """

    name = "torchrun"

    def __init__(self, procfs: Path) -> None:
        self._procfs = str(procfs)
        # By (job, local rank): torchrun gives a rank the same number in each attempt.
        self._ranks: dict[tuple[str, int], int] = {}

    def find(self, targets: Targets, guard: Guard) -> Iterator[Claim | Unread]:
        """Yield what stands in the directories of runs, each once."""
        jobs = set(targets.job_ids)
        known = {key: rank for key, rank in self._ranks.items() if key[0] in jobs}
        for each in targets.ranks:
            if each.local_rank is not None:
                known[each.job_id, each.local_rank] = each.rank
        self._ranks = known
        seen: set[tuple[str, str]] = set()
        for each in targets.ranks:
            where = each.job_id, each.run_directory
            if each.run_directory and where not in seen:
                seen.add(where)
                root = self._root(each.pid, each.run_directory)
                yield from self._files(root, _IN_RUN, each.job_id, 0.0, guard)
        for holder in targets.holders:
            directory = self._log_dir(holder)
            if directory is not None:
                yield from self._files(
                    directory, f"*/{_IN_RUN}", holder.job_id, holder.started, guard
                )

    def _root(self, pid: int, directory: str) -> str:
        """Return the directory as this process can reach it, also after the rank has ended."""
        root = f"{self._procfs}/{pid}/root"
        return f"{root}{directory}" if os.path.lexists(root) else directory

    def _log_dir(self, holder: HolderTarget) -> str | None:
        """Return torchrun's directory from its command line; None if it is not torchrun."""
        try:
            command = read_whole(f"{self._procfs}/{holder.pid}/cmdline")
        except OSError:
            return None
        option = _OPTION.search(command)
        if option is None or b"torch" not in command:
            return None
        directory = os.fsdecode(option[1])
        if not directory.startswith("/"):
            return f"{self._procfs}/{holder.pid}/cwd/{directory}"
        return self._root(holder.pid, directory)

    def _files(
        self, directory: str, pattern: str, job_id: str, since: float, guard: Guard
    ) -> Iterator[Claim | Unread]:
        group = directory.partition("/root")[2] or directory
        try:
            guard.enter(group)
        except OSError as error:
            yield Unread(self.name, reason_of(error))
            return
        paths = glob.iglob(f"{glob.escape(directory)}/{pattern}")  # noqa: PTH207 - hot path
        for path in itertools.islice(paths, _MOST_FILES):
            match = _LOG.search(path)
            if match is None:
                continue
            status = status_of(path)
            if isinstance(status, str):
                yield Unread(self.name, status)
            elif status.st_mtime >= since:
                rank = self._ranks.get((job_id, int(match[1])))
                yield Claim(
                    path, group, self.name, status, job_id, rank, names_rank=True, only_here=True
                )
