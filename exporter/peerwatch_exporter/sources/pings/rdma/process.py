"""Runs ``rping``, bounded in time and output, and hears each line when it is written."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.pings.rdma.rping import Outcome, State, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# rping writes some lines for each exchange.
_MOST_BYTES = 1 << 20
_READ_BYTES = 65536
# So soon it is seen that a run is to end.
_LONGEST_WAIT_SECONDS = 0.2
# Loaded before any fork, where little may be done.
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run wrote.

    Parameters
    ----------
    output
        All of it.
    times
        When each line of it came, in monotonic seconds.
    timed_out
        Whether it was ended because it took too long.
    """

    output: bytes
    times: list[float]
    timed_out: bool


def _nobody(_: bytes) -> None:
    """Hear a line."""


def _never() -> bool:
    return False


def run(
    command: Sequence[str],
    timeout_seconds: float,
    hear: Callable[[bytes], None] = _nobody,
    is_ended: Callable[[], bool] = _never,
) -> Run:
    """Return what a command wrote.

    Parameters
    ----------
    command
        Its command line.
    timeout_seconds
        It is ended after so long.
    hear
        Called with each line when it comes, and with what stands behind the last.
    is_ended
        Whether to end it before.

    Raises
    ------
    OSError
        If the tool is missing or may not be run, or there is no terminal for it.
    """
    # A terminal, so that each line is written when it comes.
    ours, theirs = os.openpty()
    try:
        try:
            process = _start(command, theirs)
        finally:
            os.close(theirs)
        try:
            return _read(ours, time.monotonic() + timeout_seconds, hear, is_ended)
        finally:
            _end(process)
    finally:
        os.close(ours)


def run_client(command: Sequence[str], timeout_seconds: float) -> Outcome:
    """Return what came of a client; it is ended after ``timeout_seconds``."""
    try:
        found = run(command, timeout_seconds)
    except OSError as error:
        return Outcome(None, state_of_error(error), text=str(error))
    return outcome(found.output, found.times, timed_out=found.timed_out)


def state_of_error(error: OSError) -> State:
    """Return what is wrong with a node on which the tool does not start."""
    return "tool_missing" if isinstance(error, FileNotFoundError) else "no_access"


def _read(
    terminal: int, deadline: float, hear: Callable[[bytes], None], is_ended: Callable[[], bool]
) -> Run:
    output, heard = bytearray(), 0
    times: list[float] = []
    # `select.select` refuses a descriptor from 1024 on, which a busy exporter has.
    readable = select.poll()
    readable.register(terminal, select.POLLIN)
    while len(output) < _MOST_BYTES and not is_ended():
        left = deadline - time.monotonic()
        if left <= 0:
            return Run(bytes(output), times, timed_out=True)
        if not readable.poll(min(left, _LONGEST_WAIT_SECONDS) * 1000):
            continue
        try:
            data = os.read(terminal, _READ_BYTES)
        except OSError:
            # So Linux says that the other side of a terminal was closed.
            break
        if not data:
            break
        output += data.replace(b"\r", b"")
        times += [time.monotonic()] * data.count(b"\n")
        while (end := output.find(b"\n", heard)) >= 0:
            hear(bytes(output[heard:end]))
            heard = end + 1
    if heard < len(output):
        hear(bytes(output[heard:]))
    return Run(bytes(output), times, timed_out=len(output) >= _MOST_BYTES)


def _start(command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call of the C library
    )


def _die_with_parent() -> None:
    """Have the kernel end it with the thread that started it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        # A process in the kernel's hands may stay; nothing waits for it.
        process.poll()
