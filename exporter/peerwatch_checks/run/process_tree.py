"""Ends a process with everything that it started, also what left its process group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Collection, Iterable

    import psutil

# linux/prctl.h.
_PR_SET_CHILD_SUBREAPER = 36
# As in guard.py: a killed process is gone after some milliseconds.
_POLL_SECONDS = 0.02
# Who does not end within this after SIGKILL is in a call of the kernel that never returns.
_KILL_SECONDS = 2.0


def own_children() -> frozenset[int]:
    """Return the process ids of this process' children."""
    import psutil  # noqa: PLC0415 - a list of checks needs no processes

    return frozenset(each.pid for each in psutil.Process().children())


def adopt_orphans(*, adopt: bool = True) -> None:
    """Become the parent of descendants whose parent ends, so that they can be found; or no more."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


class ProcessTree:
    """A child process, and what descends from it.

    Parameters
    ----------
    process
        Leader of a session of its own.
    others
        Children that this process had before: they are none of it.
    """

    def __init__(self, process: subprocess.Popen[bytes], others: Collection[int] = ()) -> None:
        self._process = process
        self._others = frozenset(others)
        self._known: dict[int, psutil.Process] = {}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all that are alive."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
        for each in self._found():
            _send(each, number)

    def end(self, grace_seconds: float) -> bool:
        """Ask all to end, and kill who is left; return whether all are gone.

        Parameters
        ----------
        grace_seconds
            From SIGTERM to SIGKILL.
        """
        self.signal(signal.SIGTERM)
        self._wait(grace_seconds)
        # Whoever starts processes while it is killed is met again.
        for _ in range(3):
            self.signal(signal.SIGKILL)
            if self._wait(_KILL_SECONDS):
                return True
        return False

    def sweep(self) -> None:
        """Kill what the process left behind when it ended."""
        if self._found():
            self.end(0.0)

    def _wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            gone = self._process.poll() is not None
            if gone and not self._found():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def _found(self) -> list[psutil.Process]:
        """Return the descendants that are alive, and reap those that were adopted and ended."""
        import psutil  # noqa: PLC0415

        for each in _descendants(self._process.pid):
            self._known.setdefault(each.pid, each)
        # Whoever else is a child of this process was adopted: checks run one after the other.
        for each in psutil.Process().children():
            if each.pid != self._process.pid and each.pid not in self._others:
                self._known.setdefault(each.pid, each)
        alive = []
        for each in list(self._known.values()):
            if each.pid != self._process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(each.pid, os.WNOHANG)
            if _is_alive(each):
                alive.append(each)
            else:
                del self._known[each.pid]
        return alive


def _descendants(pid: int) -> Iterable[psutil.Process]:
    import psutil  # noqa: PLC0415

    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return ()
    return found


def _is_alive(process: psutil.Process) -> bool:
    import psutil  # noqa: PLC0415

    try:
        is_zombie: bool = process.status() == psutil.STATUS_ZOMBIE
        # It compares the time of its start: the number may be another process' by now.
        is_running: bool = process.is_running()
    except psutil.Error:
        return False
    return is_running and not is_zombie


def _send(process: psutil.Process, number: signal.Signals) -> None:
    import psutil  # noqa: PLC0415

    with contextlib.suppress(psutil.Error):
        process.send_signal(number)
