"""One run of checks at a time on a node: two of them would measure one another."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_common.errors import PeerwatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Whoever may run checks may lock: root in a prolog, a user by hand.
_EVERYBODY = 0o666


class LockedError(PeerwatchError):
    """Another run holds the node's lock."""


@contextlib.contextmanager
def node_lock(path: Path) -> Iterator[None]:
    """Hold the node's lock; it is let go of when the process ends, however it ends.

    Parameters
    ----------
    path
        The file; where its folder cannot be written, one of the same name in the folder for
        temporary files.

    Raises
    ------
    LockedError
        At once, if another run holds it.
    OSError
        If there is no file to lock.
    """
    descriptor = _opened(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = f"Another run of checks holds {path}; one runs at a time on a node."
            raise LockedError(text) from error
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        return _open(path)
    except OSError:
        return _open(Path(tempfile.gettempdir(), path.name))


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Without O_CREAT first: in a sticky folder the kernel refuses it for others' files.
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, _EVERYBODY)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, _EVERYBODY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(f"{path} is no regular file.")
    return descriptor
