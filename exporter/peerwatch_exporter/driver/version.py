"""Notices that a GPU driver was loaded, unloaded or exchanged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES = 4096  # the file has two lines


class DriverVersion:
    """The driver's version file, which is there while its kernel module is loaded.

    Parameters
    ----------
    procfs
        Where procfs is mounted.
    """

    def __init__(self, procfs: Path) -> None:
        self._path = str(procfs / "driver" / "nvidia" / "version")
        self._last = self._read()

    def changed(self) -> bool:
        """Return whether another driver is loaded than at the last call, none counting as none.

        True when a driver appears or another one does; not when it goes.
        """
        last, self._last = self._last, self._read()
        return self._last is not None and self._last != last

    def _read(self) -> bytes | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, _READ_BYTES)
        except OSError:
            return None
        finally:
            os.close(descriptor)
