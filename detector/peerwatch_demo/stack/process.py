"""Child processes that cannot outlive the demo, and the ports they listen on.

Every child leads its own session, so that a Ctrl-C on the terminal reaches the demo alone and a
signal to the child's group reaches all of it; and the kernel kills it when its parent dies.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

# Below the ranges from which kernels take ports for outgoing connections (32768 and up, in some
# sandboxes 16000), so that a port found free is not given away between the look and the bind.
PORTS = range(12000, 16000)
# A server may be started long after its port was chosen, and started again on the same one.
_given: set[int] = set()
# Chosen: far more than any server needs on a busy machine; it ends what would wait for ever.
START_SECONDS = 300.0


class StackError(RuntimeError):
    """A process of the stack did not start, died, or did not get ready in time."""


def tied(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs ``arguments`` and is killed when its parent dies.

    The kernel sends the signal when the *thread* that started the child ends, so children are
    started from a thread that lives as long as they should.

    Raises
    ------
    StackError
        If the program, or the one that ties it, does not exist.
    """
    for program, what in ((arguments[0], ""), ("setpriv", " (package util-linux)")):
        if shutil.which(program) is None:
            raise StackError(f"{program!r} does not exist or is not on PATH{what}.")
    # A function between fork and exec could do the same, but not safely beside other threads.
    return ["setpriv", "--pdeathsig", "KILL", "--", *arguments]


@dataclass(slots=True)
class Process:
    """One running child: its name, its log, and the way to end it with its whole session."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes] = field(repr=False)

    @classmethod
    def start(
        cls,
        name: str,
        arguments: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        pipes: bool = False,
    ) -> Process:
        """Start ``arguments`` in a session of its own, its output appended to ``log``.

        Parameters
        ----------
        environment
            The child's whole environment; the parent's own by default.
        pipes
            Connect standard input and output to ``popen``; only errors go to the log then.

        Raises
        ------
        StackError
            If there is no such program.
        """
        try:
            command = tied(arguments)
        except StackError as error:
            raise StackError(f"{name} cannot be started: {error}") from error
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                env=None if environment is None else dict(environment),
                cwd=directory,
                start_new_session=True,
            )
        return cls(name, log, popen)

    @property
    def pid(self) -> int:
        """The child's process id, which is also its session's."""
        return self.popen.pid

    @property
    def alive(self) -> bool:
        """Whether the child still runs."""
        return self.popen.poll() is None

    @property
    def stdin(self) -> IO[bytes]:
        """The child's standard input; only with ``pipes``."""
        assert self.popen.stdin is not None
        return self.popen.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The child's standard output; only with ``pipes``."""
        assert self.popen.stdout is not None
        return self.popen.stdout

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child's session, unless the child has already been reaped.

        A reaped child's id may belong to a stranger by now, so it is never signalled.
        """
        if self.popen.poll() is None:
            os.killpg(self.pid, number)

    def stop(self, seconds: float = 5.0) -> None:
        """End the child: SIGTERM to its session, then SIGKILL when it takes too long."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process would keep its SIGTERM for later
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """Kill the child's whole session at once."""
        self.signal(signal.SIGKILL)
        self.popen.wait()
        self._close()

    def tail(self, lines: int = 12) -> str:
        """Return the end of the log, for error messages."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _close(self) -> None:
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


def free_ports(count: int, rng: random.Random | None = None) -> list[int]:
    """Return ``count`` different TCP ports of 127.0.0.1 that nobody listens on.

    No port comes twice, in later calls of this process neither unless all have come.

    Raises
    ------
    StackError
        If too few ports are free.
    """
    wanted = min(len(PORTS), 50 + 10 * count)
    if len(PORTS) - len(_given) < wanted:
        _given.clear()
    fresh = [port for port in PORTS if port not in _given]
    candidates = (rng or random.SystemRandom()).sample(fresh, k=wanted)
    held: list[socket.socket] = []
    try:
        for port in candidates:
            if len(held) == count:
                break
            try:
                holder = socket.socket()
            except OSError:  # as many files are open as may be
                break
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                holder.close()
            else:
                held.append(holder)
        if len(held) < count:
            raise StackError(
                f"Only {len(held)!r} of {count!r} TCP ports from {PORTS.start} to {PORTS.stop} "
                "could be bound on 127.0.0.1. Stop other servers and try again."
            )
        ports = [int(holder.getsockname()[1]) for holder in held]
        _given.update(ports)
        return ports
    finally:
        for holder in held:
            holder.close()


def wait_http(url: str, process: Process, seconds: float = START_SECONDS) -> None:
    """Wait until ``url`` answers 200.

    Raises
    ------
    StackError
        If the process dies or the time is over; with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not _answers(url):
        if not process.alive:
            code = process.popen.returncode
            raise StackError(f"{process.name} ended with status {code!r}:\n{process.tail()}")
        if time.monotonic() > deadline:
            raise StackError(
                f"{process.name} was not ready at {url} within {seconds:g} s:\n{process.tail()}"
            )
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
