"""Counter files that stay open: a read is one system call, and a bad file costs only itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sampler.ring import MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ_BYTES = 32  # a number of 64 bits has 20 digits
# Some mlx5 functions refuse a register with EINVAL and make the kernel log a line each time. From
# 10 s on, doubled six times.
_LONGEST_RETRY_SECONDS = 640.0


@dataclass(slots=True)
class _File:
    path: str
    descriptor: int | None = None
    retry_at: float = 0.0
    delay: float = 0.0


class CounterFiles:
    """Files with a number each, read together.

    Parameters
    ----------
    paths
        The files, in the order of the values.
    retry_seconds
        After this long a file that could not be read is tried again; twice as long each time.
    """

    def __init__(self, paths: Sequence[str], retry_seconds: float) -> None:
        self._files = [_File(path) for path in paths]
        self._retry_seconds = retry_seconds
        self._descriptors: list[int] = []
        self._complete = False

    @property
    def missing(self) -> int:
        """How many files cannot be read."""
        return len(self._files) - len(self._descriptors)

    def read(self, now: float) -> list[int]:
        """Return the values, ``MISSING`` for a file that has none.

        Parameters
        ----------
        now
            Monotonic seconds, for the next attempt at a file that fails.
        """
        if self._complete:
            pread = os.pread
            try:
                return [int(pread(number, _READ_BYTES, 0)) for number in self._descriptors]
            except (OSError, ValueError):
                pass
        return [self._value(file, now) for file in self._files]

    def refresh(self, now: float) -> None:
        """Open files that are due for an attempt; close those that no longer have a name."""
        for file in self._files:
            if file.descriptor is not None and os.fstat(file.descriptor).st_nlink == 0:
                self._close(file)
                file.retry_at = now
            if file.descriptor is None and now >= file.retry_at:
                self._open(file, now)
        self._note()

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            self._close(file)
        self._note()

    def _value(self, file: _File, now: float) -> int:
        if file.descriptor is None:
            return MISSING
        try:
            value = int(os.pread(file.descriptor, _READ_BYTES, 0))
        except (OSError, ValueError):
            self._fail(file, now)
            self._note()
            return MISSING
        return value

    def _open(self, file: _File, now: float) -> None:
        try:
            file.descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fail(file, now)
            return
        if self._value(file, now) != MISSING:
            file.delay = 0.0

    def _fail(self, file: _File, now: float) -> None:
        self._close(file)
        file.delay = min(max(self._retry_seconds, 2 * file.delay), _LONGEST_RETRY_SECONDS)
        file.retry_at = now + file.delay

    def _close(self, file: _File) -> None:
        if file.descriptor is not None:
            os.close(file.descriptor)
            file.descriptor = None

    def _note(self) -> None:
        self._descriptors = [file.descriptor for file in self._files if file.descriptor is not None]
        self._complete = len(self._descriptors) == len(self._files)
