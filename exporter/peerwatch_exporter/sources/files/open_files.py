"""Small files that are read every second, through descriptors that stay open.

Opening a file of sysfs resolves eight directories and costs several times what reading it does.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

READ_BYTES = 4096  # sysfs gives a memory page at most
# What reading a descriptor fails with whose file is gone: the device went away, perhaps to come
# back.
_GONE = frozenset({errno.ENODEV, errno.ESTALE, errno.EBADF, errno.ENOENT, errno.ENXIO})


class OpenFiles:
    """Reads files and keeps them open, up to a limit; files beyond it are opened for each read.

    Parameters
    ----------
    limit
        How many descriptors are held at most. Services often may have 1,024 in all.
    """

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._open: dict[str, int] = {}
        # Files of a disk, unlike those of a kernel, can still be read when another one stands at
        # their path: whether they have is asked at every read.
        self._on_disk: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __del__(self) -> None:
        self.close()

    def read(self, path: str) -> bytes:
        """Return the first 4 KiB of a file.

        Raises
        ------
        OSError
            As opening and reading do; a device that was replaced is found by its path again.
        """
        descriptor = self._open.get(path)
        if descriptor is not None:
            try:
                if path not in self._on_disk or os.fstat(descriptor).st_nlink:
                    return os.pread(descriptor, READ_BYTES, 0)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
            self.forget(path)
        return self._first(path)

    def read_all(self, paths: Iterable[str]) -> list[bytes | OSError]:
        """Return what ``read`` returns or raises, for each of the files.

        Hundreds of them every second: in one loop, without a call of ours for each.
        """
        opened, on_disk = self._open, self._on_disk
        contents: list[bytes | OSError] = []
        for path in paths:
            descriptor = opened.get(path)
            content: bytes | OSError | None = None
            if descriptor is not None:
                try:
                    if path not in on_disk or os.fstat(descriptor).st_nlink:
                        content = os.pread(descriptor, READ_BYTES, 0)
                except OSError as error:
                    content = error if error.errno not in _GONE else None
            contents.append(self._outcome(path) if content is None else content)
        return contents

    def forget(self, path: str) -> None:
        """Close a file; it is opened anew when it is read again."""
        descriptor = self._open.pop(path, None)
        self._on_disk.discard(path)
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def retain(self, paths: set[str]) -> None:
        """Close all files but these."""
        for path in self._open.keys() - paths:
            self.forget(path)

    def close(self) -> None:
        """Close all files."""
        self.retain(set())

    def _outcome(self, path: str) -> bytes | OSError:
        try:
            return self.read(path)
        except OSError as error:
            return error

    def _first(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        keep = False
        try:
            content = os.pread(descriptor, READ_BYTES, 0)
            keep = len(self._open) < self._limit
            if keep:
                self._open[path] = descriptor
                # sysfs reports 4,096 bytes and procfs 0, whatever there is to read.
                if os.fstat(descriptor).st_size == len(content):
                    self._on_disk.add(path)
        finally:
            if not keep:
                os.close(descriptor)
        return content
