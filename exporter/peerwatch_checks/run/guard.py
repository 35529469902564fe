"""A process between the program and a check: it ends all that is left if the program is killed.

SIGKILL lets the program run no code, and the kernel ends only children with their parent, not what
they started. The guard is the parent of whatever descends from the check and loses its own
(PR_SET_CHILD_SUBREAPER), so it finds all of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import time
from typing import TYPE_CHECKING

from peerwatch_checks.run.process_tree import adopt_orphans

if TYPE_CHECKING:
    from pathlib import Path

# linux/prctl.h.
_PR_SET_PDEATHSIG = 1
# By which the kernel says that the program has ended; the parent's number is what counts.
_PARENT_ENDED = signal.SIGUSR1
# Chosen: signals wake it at once, and one that was missed costs a second.
_TICK_SECONDS = 1.0
# Chosen: a killed process is gone after some milliseconds.
_KILL_TICK_SECONDS = 0.02
# Chosen: who does not end within this after SIGKILL is in a call of the kernel that never returns.
_KILL_SECONDS = 2.0


def guarded(parent: int, folder: Path, results: int) -> None:
    """Fork: return in the new process, which runs the check; this one guards it and ends like it.

    Parameters
    ----------
    parent
        The program's process id.
    folder
        The check's own, removed if the program can no more.
    results
        Descriptor to which only the check writes.
    """
    # The guard outlives every signal but SIGKILL, and takes those that matter when it waits.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    guard = os.getpid()
    adopt_orphans()
    _signal_at_parents_end(_PARENT_ENDED)
    check = os.fork()
    if check == 0:
        _signal_at_parents_end(signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    status = 1
    try:
        os.close(results)
        status = _guard(check, parent, folder)
    finally:
        # Nothing of the check's own code may run in this process.
        _end_as(status)


def _guard(check: int, parent: int, folder: Path) -> int:
    """Return the status with which the check ended; 1 if the program was killed."""
    status: int | None = None
    while os.getppid() == parent:
        ended, any_left = _reaped()
        status = ended.get(check, status)
        # Whoever got SIGTERM has the time that the program gives; it kills this process then.
        if status is not None and signal.SIGTERM not in signal.sigpending():
            break
        if not any_left:
            break
        signal.sigtimedwait({signal.SIGCHLD, _PARENT_ENDED}, _TICK_SECONDS)
    is_orphan = os.getppid() != parent
    _kill_descendants()
    if is_orphan:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if status is None else status


def _reaped() -> tuple[dict[int, int], bool]:
    """Return the children that ended, with their statuses, and whether any is left."""
    ended: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return ended, True
            ended[pid] = status
    except ChildProcessError:
        return ended, False


def _kill_descendants() -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while _reaped()[1] and time.monotonic() < deadline:
        import psutil  # noqa: PLC0415 - most checks leave nothing

        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()
        time.sleep(_KILL_TICK_SECONDS)


def _end_as(status: int) -> None:
    """End with an exit status, or by the signal that another process ended by."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # The other has left its core, if it was to leave one.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os._exit(abs(code))


def _signal_at_parents_end(number: signal.Signals) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
