"""Runs one check in its process until it ends, its deadline comes, or the run is to stop."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from peerwatch_checks.check import Outcome
from peerwatch_checks.run.process_tree import ProcessTree, own_children
from peerwatch_common.check_results.record import STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# What a check may say in all; a line is an outcome of some hundred characters. Chosen: four times
# what is kept of a check (peerwatch_common.check_results.spool).
_MOST_OUTPUT = 4 * 1024**2
# The end of what it and its libraries print: chosen, a traceback.
_MOST_MESSAGES = 16 * 1024
# What a pipe of Linux holds.
_READ = 65536
# Chosen: nobody sees a check end a tenth of a second late, and ten looks a second cost nothing.
_TICK_SECONDS = 0.1
_CHILD = (sys.executable, "-m", "peerwatch_checks.run.child")
# From SIGTERM to SIGKILL. Chosen: well below the 30 s that Slurm and Kubernetes wait by default.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finished:
    """How the process of a check ended.

    Parameters
    ----------
    outcomes
        What it said.
    problem
        Why what it said is not all; empty: it came to its end.
    """

    outcomes: tuple[Outcome, ...]
    problem: str = ""


def supervised(
    job: Mapping[str, Any],
    seconds: float,
    *,
    work: Path | None = None,
    grace_seconds: float = GRACE_SECONDS,
    stopped: Callable[[], str] = lambda: "",
    watching: Callable[[float], None] = lambda _seconds: None,
) -> Finished:
    """Run a check; return what it said, at most ``seconds + grace_seconds`` and a moment later.

    Parameters
    ----------
    job
        What ``child`` reads, without its folder and its time.
    seconds
        Its deadline; then all its processes get SIGTERM, and SIGKILL after ``grace_seconds``.
    work
        Where its own folder is made.
    stopped
        Returns why the whole run ends now; empty: it does not.
    watching
        Called while it runs, with the seconds since its start.
    """
    with tempfile.TemporaryDirectory(
        prefix="peerwatch-check-", dir=work, ignore_cleanup_errors=True
    ) as folder:
        text = json.dumps({**job, "work_folder": folder, "seconds": seconds}).encode()
        others = own_children()
        with _started(text) as (process, pipes):
            tree = ProcessTree(process, others)
            problem = _until_its_end(process, pipes, seconds, stopped, watching)
            if problem and not tree.end(grace_seconds):
                problem += " One of its processes cannot be ended: it hangs in the kernel."
            tree.sweep()
            pipes.drain()
    return Finished(pipes.outcomes(), problem or _end_of(process, pipes))


class _Pipes:
    """What the process writes: outcomes, and messages of which the end is kept."""

    def __init__(self, results: int, messages: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._parts: dict[int, bytearray] = {results: bytearray(), messages: bytearray()}
        self._results, self._messages = results, messages
        for descriptor in self._parts:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    def read(self, seconds: float) -> None:
        """Read what comes within a time; a moment at least if all pipes are closed."""
        if not self._selector.get_map():
            time.sleep(seconds)
        for key, _events in self._selector.select(seconds):
            self._take(key.fd)

    def drain(self) -> None:
        """Read what is there."""
        while any(self._take(key.fd) for key, _events in self._selector.select(0)):
            pass

    def close(self) -> None:
        """Close both."""
        self._selector.close()
        for descriptor in self._parts:
            os.close(descriptor)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return what the check said; the rest of a line that was cut is left out."""
        lines = bytes(self._parts[self._results]).split(b"\n")[:-1]
        return tuple(map(_outcome, lines))

    @property
    def last_message(self) -> str:
        """The last line that the check printed."""
        lines = bytes(self._parts[self._messages]).decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def overflowed(self) -> bool:
        """Whether the check said more than is read."""
        return len(self._parts[self._results]) >= _MOST_OUTPUT

    def _take(self, descriptor: int) -> bool:
        try:
            part = os.read(descriptor, _READ)
        except BlockingIOError:
            return False
        if not part:
            self._selector.unregister(descriptor)
            return False
        kept = self._parts[descriptor]
        if descriptor == self._messages:
            kept += part
            del kept[:-_MOST_MESSAGES]
        elif len(kept) < _MOST_OUTPUT:
            kept += part
        return True


@contextlib.contextmanager
def _started(text: bytes) -> Iterator[tuple[subprocess.Popen[bytes], _Pipes]]:
    results_read, results_write = os.pipe()
    messages_read, messages_write = os.pipe()
    pipes = _Pipes(results_read, messages_read)
    try:
        with tempfile.TemporaryFile() as given:
            given.write(text)
            given.seek(0)
            process = subprocess.Popen(
                [*_CHILD, str(results_write), str(os.getpid())],
                stdin=given,
                stdout=messages_write,
                stderr=messages_write,
                pass_fds=(results_write,),
                start_new_session=True,
                env=_environment(),
            )
    except BaseException:
        pipes.close()
        raise
    finally:
        os.close(results_write)
        os.close(messages_write)
    try:
        yield process, pipes
    finally:
        pipes.close()


def _environment() -> dict[str, str]:
    """Return this process' environment, as the same packages are found by the check's.

    What a user set for NCCL is for the user's jobs: checks take the library's defaults.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _until_its_end(
    process: subprocess.Popen[bytes],
    pipes: _Pipes,
    seconds: float,
    stopped: Callable[[], str],
    watching: Callable[[float], None],
) -> str:
    """Read until the process ended or is to be ended; return why it is to be."""
    begun = time.monotonic()
    while process.poll() is None:
        pipes.read(_TICK_SECONDS)
        running = time.monotonic() - begun
        watching(running)
        if reason := stopped():
            return f"It was ended: {reason}."
        if running >= seconds:
            return f"It did not end within {seconds:g} s and was ended."
        if pipes.overflowed:
            return "It said more than a check may, and was ended."
    return ""


def _end_of(process: subprocess.Popen[bytes], pipes: _Pipes) -> str:
    """Return what is wrong with how a process ended."""
    if process.returncode == 0:
        return ""
    how = (
        f"by signal {-process.returncode}"
        if process.returncode < 0
        else f"with exit status {process.returncode}"
    )
    last = pipes.last_message
    return f"Its process ended {how}{': ' + last if last else ''}."


def _outcome(line: bytes) -> Outcome:
    """Return the outcome that a line holds; one that holds none says so."""
    try:
        data = json.loads(line)
        outcome = Outcome(**{each.name: data[each.name] for each in fields(Outcome)})
    except (ValueError, KeyError, TypeError) as error:
        return Outcome("error", f"It said what is no outcome ({error}): {line[:100]!r}.")
    if outcome.status not in STATUSES:
        return Outcome("error", f"It ended with the status {outcome.status!r}, which is none.")
    return outcome
