"""The folder in memory for the nodes' files: it goes with the demo, however that ends.

A demo that is killed can remove nothing, so the next one does. Each holds a lock on its folder,
which the kernel lets go when the process ends; a process id would say nothing about processes of
another container, and may have been given to another program since.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "peerwatch-fleet-"


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """A folder that nobody else removes while this process lives.

    Parameters
    ----------
    path
        Where it is.
    lock
        The open folder, locked.
    """

    path: Path
    lock: int

    @classmethod
    def make(cls, memory: Path) -> MemoryFolder:
        """Make one; its name says by which process."""
        while True:
            path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory))
            try:
                lock = _opened(path)
            except FileNotFoundError:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Before it was locked, another demo may have taken it for left behind.
            if os.fstat(lock).st_nlink:
                return cls(path, lock)
            os.close(lock)

    def remove(self) -> None:
        """Remove it and all in it; once only."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_left_behind(memory: Path, user: int) -> None:
    """Remove the folders of demos that ended without doing so themselves.

    Parameters
    ----------
    memory
        Where they are.
    user
        Whose; those of others are left alone.
    """
    for path in memory.glob(f"{_PREFIX}*"):
        try:
            lock = _opened(path)
        except OSError:
            # No folder, a link, another user's, or gone already.
            continue
        try:
            if os.fstat(lock).st_uid == user:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
