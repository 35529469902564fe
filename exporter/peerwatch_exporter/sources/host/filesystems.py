"""Local filesystems of the node: which are mounted, how full they are, whether they refuse writes.

``statvfs`` of a filesystem whose server or disk hangs never returns, and neither a signal nor a
time-out ends it. So only local types are asked, in a thread that is given up when it hangs; the
filesystem that it hangs on is then reported as such, and not asked again before that call returns.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peerwatch_common.mount_points import unescaped
from peerwatch_exporter.sources.files.whole_file import read_whole
from peerwatch_exporter.sources.host.procfs import GarbledFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

# Types on disks of the node. What is not here (NFS, Lustre, GPFS, FUSE, and what is yet to come)
# may need a server to answer, and is never touched.
_ON_DISKS = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "reiserfs", "xfs", "zfs"}
)
# Types that the kernel answers by itself, so that a path through them cannot hang.
_BY_THE_KERNEL = frozenset(
    {
        *("binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs"),
        *("efivarfs", "erofs", "fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "overlay"),
        *("proc", "pstore", "ramfs", "rootfs", "rpc_pipefs", "securityfs", "selinuxfs"),
        *("squashfs", "sysfs", "tmpfs", "tracefs", "vfat"),
    }
)
# In memory, and full just as well: NCCL and data loaders share memory there.
_IN_MEMORY = frozenset({"/dev/shm", "/run", "/tmp"})  # noqa: S108 - names to compare with
# What a superblock says of itself after an error, besides ro (ext4 from Linux 6.15 on).
_REFUSING = frozenset({"ro", "emergency_ro", "shutdown"})
# "36 35 98:0 /root /mount options [optional fields] - type source super_options"
_FIELDS_BEFORE = 6


@dataclass(frozen=True, slots=True)
class Mount:
    """A local filesystem where it is mounted first.

    Parameters
    ----------
    mountpoint, filesystem_type
        Where, and what it is (``ext4``).
    refuses_writes
        Whether the kernel made it read-only although it was mounted for writing, which it does
        after an error. One that was mounted read-only on purpose is as it should be.
    """

    mountpoint: str
    filesystem_type: str
    refuses_writes: bool


@dataclass(frozen=True, slots=True)
class Space:
    """Size and what unprivileged users may still take: bytes, and inodes (0 without a limit)."""

    size_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int


def local_mounts(procfs: Path) -> list[Mount]:
    """Return the node's local filesystems, each once, from the first process' ``mountinfo``.

    Of a filesystem that is mounted several times (bind mounts of containers) the shortest path
    counts. What lies below a mount of another type is left out: already its path may hang.

    Raises
    ------
    OSError
        If neither ``1/mountinfo`` nor ``self/mountinfo`` can be read.
    GarbledFileError
        If a line is none of the kernel's.
    """
    found: dict[str, Mount] = {}
    remote: list[str] = []
    for line in _mountinfo(procfs).decode("utf-8", "replace").splitlines():
        before, separator, after = line.partition(" - ")
        fields, described = before.split(" "), after.split(" ")
        if not separator or len(fields) < _FIELDS_BEFORE or len(described) < 3:
            raise GarbledFileError(procfs / "1" / "mountinfo", line)
        device, mountpoint, options = fields[2], unescaped(fields[4]), fields[5].split(",")
        kind, super_options = described[0], set(described[-1].split(","))
        # What is mounted later on the same path hides what was there.
        found = {key: mount for key, mount in found.items() if mount.mountpoint != mountpoint}
        if kind not in _ON_DISKS and not (kind == "tmpfs" and mountpoint in _IN_MEMORY):
            if kind not in _BY_THE_KERNEL:
                remote.append(mountpoint.rstrip("/") + "/")
            continue
        refuses = "rw" in options and bool(super_options & _REFUSING)
        known = found.get(device)
        if known is None or len(mountpoint) < len(known.mountpoint):
            refuses = refuses or (known is not None and known.refuses_writes)
            found[device] = Mount(mountpoint, kind, refuses)
    return [
        mount for mount in found.values() if not any(mount.mountpoint.startswith(p) for p in remote)
    ]


def statvfs(path: str) -> Space:
    """Return how full a filesystem is; may never return."""
    found = os.statvfs(path)
    return Space(
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_files,
        found.f_favail,
    )


class SpaceReader:
    """Asks filesystems how full they are, and never waits for long.

    Parameters
    ----------
    ask
        Returns the space at a path, as ``statvfs`` does; may never return.
    patience_seconds
        How long one reading of all filesystems may take.
    """

    def __init__(self, ask: Callable[[str], Space], patience_seconds: float) -> None:
        self._ask = ask
        self._patience = patience_seconds
        self._hanging: list[_Round] = []

    def read(self, mountpoints: Iterable[str]) -> tuple[dict[str, Space], frozenset[str]]:
        """Return the space by mount point, and the mount points that do not answer.

        A filesystem that answers with an error is in neither.
        """
        self._hanging = [each for each in self._hanging if not each.done.is_set()]
        stuck = {each.current for each in self._hanging}
        asked = _Round(self._ask, [point for point in mountpoints if point not in stuck])
        threading.Thread(target=asked.run, name="statvfs", daemon=True).start()
        if not asked.done.wait(self._patience):
            asked.abandoned = True
            # It may have come to an end between the two.
            if not asked.done.is_set():
                stuck.add(asked.current)
                self._hanging.append(asked)
        return dict(asked.spaces), frozenset(stuck)


@dataclass(slots=True)
class _Round:
    """One reading of all filesystems, in a thread of its own."""

    ask: Callable[[str], Space]
    mountpoints: list[str]
    spaces: dict[str, Space] = field(default_factory=dict)
    current: str = ""
    abandoned: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            for mountpoint in self.mountpoints:
                if self.abandoned:
                    break
                self.current = mountpoint
                try:
                    self.spaces[mountpoint] = self.ask(mountpoint)
                except OSError:
                    # Not mounted any more, or out of reach for this user.
                    continue
        finally:
            self.done.set()


def _mountinfo(procfs: Path) -> bytes:
    # The first process has the node's mounts; the exporter's own are those of its container.
    try:
        return read_whole(f"{procfs}/1/mountinfo")
    except (FileNotFoundError, PermissionError):
        return read_whole(f"{procfs}/self/mountinfo")
