"""Whose lines a file has, and which of them this node counts.

A file that every node of a job can see must not be counted by each of them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.sources.files.whole_file import read_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from peerwatch_exporter.sources.logs.found import Claim
    from peerwatch_exporter.sources.logs.targets import Targets

# Those that one machine has to itself. Any other may be seen by several.
_LOCAL = frozenset(
    {"bcachefs", "btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs"}
    | {"rootfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs"}
)
_MOUNT = re.compile(rb"^\d+ \d+ (\d+):(\d+) [^\n]*? - (\S+) ", re.MULTILINE)
# Chosen: mounts change with jobs, which run for minutes at least.
_VALID_SECONDS = 60.0


class Owner(NamedTuple):
    """Whose lines a file has.

    Parameters
    ----------
    job_id
        Empty if that is not known.
    rank
        Who wrote the lines that name no rank; None if that may be several.
    is_shared
        Whether other nodes read the file, too: then only the lines of this node's ranks count.
    counts_unnamed
        Whether lines that name no rank count here.
    """

    job_id: str
    rank: int | None
    is_shared: bool = False
    counts_unnamed: bool = True


def owner_of(claims: Sequence[Claim], targets: Targets, *, is_local: bool) -> Owner:
    """Return whose lines a file has, by all who found it.

    On a file system that other nodes see, too, a file is this node's own if its path is of one of
    its ranks, if only a launcher holds it, or if one of several ranks here has it to itself.
    Lines without a rank in any other file count on the node of rank 0.
    """
    job_ids = {claim.job_id for claim in claims if claim.job_id}
    job_id = job_ids.pop() if len(job_ids) == 1 else ""
    ranks = {claim.rank for claim in claims if claim.rank is not None}
    rank = next(iter(ranks)) if len(ranks) == 1 else None
    if is_local or all(claim.only_here for claim in claims):
        return Owner(job_id, rank)
    if rank is not None and _is_own(claims, rank, job_id, targets):
        return Owner(job_id, rank)
    return Owner(job_id, None, is_shared=True, counts_unnamed=job_id in targets.first_jobs)


def _is_own(claims: Sequence[Claim], rank: int, job_id: str, targets: Targets) -> bool:
    if any(claim.names_rank for claim in claims):
        return True
    here = [target for target in targets.ranks if target.job_id == job_id]
    return len(here) > 1 or any(each.world_size == 1 for each in here if each.rank == rank)


class FileSystems:
    """Knows which devices hold file systems of this node alone.

    Parameters
    ----------
    procfs
        The /proc root; its first process sees the mounts of all pods.
    monotonic
        Clock for the age of what is known.
    """

    def __init__(self, procfs: Path, monotonic: Callable[[], float]) -> None:
        self._files = tuple(f"{procfs}/{process}/mountinfo" for process in ("1", "self"))
        self._monotonic = monotonic
        self._types: Mapping[int, str] = {}
        self._read_at: float | None = None

    def is_local(self, device: int) -> bool:
        """Return whether a device (``st_dev``) is of this node alone; one that is unknown is."""
        now = self._monotonic()
        stale = self._read_at is None or now - self._read_at > _VALID_SECONDS
        if stale and device not in self._types:
            self._types, self._read_at = self._read(), now
        return self._types.get(device, "ext4") in _LOCAL

    def _read(self) -> Mapping[int, str]:
        types: dict[int, str] = {}
        for path in self._files:
            try:
                content = read_whole(path)
            except OSError:
                continue
            for major, minor, kind in _MOUNT.findall(content):
                types[os.makedev(int(major), int(minor))] = kind.decode(errors="replace")
        return types
