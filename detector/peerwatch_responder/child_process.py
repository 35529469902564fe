"""Runs somebody else's command within its time, and ends all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Chosen: between SIGTERM and SIGKILL, for a command to end what it has started elsewhere; after
# SIGKILL for the kernel to take the processes away.
_KILL_SECONDS = 5.0


class Ended(NamedTuple):
    """How a command ended.

    Parameters
    ----------
    status
        Its exit status; None: it did not end in time.
    output, errors
        What it wrote until then.
    """

    status: int | None
    output: bytes
    errors: bytes


def run_child(
    command: Sequence[str],
    seconds: float,
    *,
    given: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    asks_first: bool = False,
) -> Ended:
    """Run a command, without a shell, in a session of its own.

    Parameters
    ----------
    command
        Program and arguments.
    seconds
        How long it may take.
    given
        Its standard input; None: none.
    environment
        Its variables; None: ours.
    asks_first
        Whether a command that takes too long gets SIGTERM, and SIGKILL only if it stays.

    Raises
    ------
    OSError
        If it cannot be started.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    ) as child:
        try:
            output, errors = child.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            if _has_ended(child):
                # What it left behind, such as ssh's master connection, only holds its pipes.
                _signal(child, signal.SIGKILL)
                return Ended(child.wait(), late.output or b"", late.stderr or b"")
            _end(child, asks_first=asks_first)
            return Ended(None, b"", b"")
        return Ended(child.returncode, output, errors)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; it is not reaped, so that its number stays its own."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, child.pid, flags) is not None


def _end(child: subprocess.Popen[bytes], *, asks_first: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL) if asks_first else (signal.SIGKILL,):
        _signal(child, number)
        # What has left its session may hold the pipes for ever.
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_KILL_SECONDS)
            return


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
