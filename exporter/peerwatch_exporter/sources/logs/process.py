"""The main process's side of reading logs: starts the process, hears it, and starts it again.

A file whose reading never returns costs its own file system: the process is ended, and the next
one leaves out what the last one touched, for a while.
"""

from __future__ import annotations

import logging
import mmap
import os
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sources.logs.agreed import MARK_BYTES, own_memory
from peerwatch_exporter.sources.logs.conversation import Conversation, HangError
from peerwatch_exporter.sources.logs.targets import Targets
from peerwatch_exporter.sources.logs.totals import LogTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.logs.agreed import LogSettings

_LOG = logging.getLogger(__name__)
COMMAND = (sys.executable, "-m", "peerwatch_exporter.sources.logs")
# It speaks once a second. Silence for ten times as long in one and the same call is a file system
# that hangs; anywhere else it is a node without CPU time, which deserves more patience.
_HANG_SECONDS = 10.0
_SILENCE_SECONDS = 60.0
# Doubled from the first to the longest: what ends at once must not cost a start every second.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# What hung is tried again after the first of these, then less and less often: each try may leave a
# process behind that cannot be killed.
_FIRST_HUNG_SECONDS, _LONGEST_HUNG_SECONDS = 60.0, 900.0
# Below the 1.8 s that the exporter has to end.
_END_SECONDS = 1.0
# Chosen: one for each of a few file systems that hang at once.
_MOST_UNKILLABLE = 4
# Of so many files it is known how far they were read: 2.5 times those that may be followed at once,
# so that one that comes back is not read anew.
_MOST_POSITIONS = 50_000


class _RefusedError(Exception):
    """The process cannot work by its settings."""


class LogReaderError(Exception):
    """The process that reads logs does not; ``error_class`` says why in a word."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class


@dataclass(frozen=True, slots=True)
class LogState:
    """What is known of the process, besides the totals.

    Parameters
    ----------
    has_searched
        Whether some process has looked for logs and read what it found.
    files, unread
        How many files are followed by provider, and how many are not by reason.
    kernel_error
        Why the kernel log is not read; None if it is.
    restarts
        How often the process was started again.
    hung
        What is left out because it hung.
    problem
        Why there is no process; None if there is.
    """

    has_searched: bool = False
    files: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    kernel_error: str | None = None
    restarts: int = 0
    hung: tuple[str, ...] = ()
    problem: LogReaderError | None = None


@dataclass(slots=True)
class _Hung:
    until: float
    seconds: float


class LogProcess:
    """Reads logs in another process.

    Parameters
    ----------
    settings
        Of the process.
    sources
        For clocks and the exporter's own processes.
    max_series
        Bound of the totals.
    command
        How it is started; two descriptors are added.
    hang_seconds
        How long one call may take.
    """

    def __init__(
        self,
        settings: LogSettings,
        sources: Sources,
        max_series: int,
        *,
        command: Sequence[str] = COMMAND,
        hang_seconds: float = _HANG_SECONDS,
    ) -> None:
        self._settings = settings
        self._monotonic: Callable[[], float] = sources.monotonic
        self._own_processes = sources.own_processes
        self._command = command
        self._hang_seconds = hang_seconds
        self._lock = threading.Lock()
        self._targets = Targets()
        self._totals = LogTotals(max_series)
        self._state = LogState()
        self._positions: dict[tuple[int, int], tuple[int, str]] = {}
        self._hung: dict[str, _Hung] = {}
        self._unkillable: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()
        self._renewed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a thread that starts the process and hears it; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._supervise, name="logs", daemon=True)
            self._thread.start()

    def leave(self) -> None:
        """Have the process ended; returns at once."""
        self._stopping.set()

    def stop(self) -> None:
        """End the process; returns within seconds, even if the process cannot end."""
        self.leave()
        if self._thread is not None:
            self._thread.join(timeout=2 * _END_SECONDS)

    def follow(self, settings: LogSettings, max_series: int) -> None:
        """Read by other settings from now on; what was counted stays."""
        with self._lock:
            changed = replace(settings, started=self._settings.started) != self._settings
            self._settings = replace(settings, started=self._settings.started)
            self._totals.max_series = max_series
        if changed:
            self._renewed.set()

    def want(self, targets: Targets) -> None:
        """Have the logs of these targets read from now on."""
        with self._lock:
            self._targets = targets

    def forget(self, job_ids: Collection[str]) -> None:
        """Forget the totals of these jobs."""
        with self._lock:
            self._totals.forget(job_ids)

    def forget_first(self, job_id: str, rank: int) -> None:
        """Forget the first error of a rank that was started again."""
        with self._lock:
            self._totals.forget_first(job_id, str(rank))

    def read(self) -> tuple[LogTotals, LogState]:
        """Return a copy of what is known now; waits for nobody."""
        with self._lock:
            return self._totals.copy(), self._state

    def _supervise(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = self._monotonic()
            try:
                self._run()
            except HangError as error:
                self._set_apart(error)
            except _RefusedError as error:
                self._problem("signatures_refused", str(error))
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._problem("log_reader_ended", str(error))
            if self._stopping.is_set():
                return
            if self._renewed.is_set():
                self._renewed.clear()
                continue
            lasted = self._monotonic() - began
            pause = _FIRST_PAUSE_SECONDS if lasted > _LONGEST_PAUSE_SECONDS else pause
            self._set(restarts=self._state.restarts + 1)
            _LOG.warning(
                "log reader ended reason=%r seconds=%.1f", str(self._state.problem), lasted
            )
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _run(self) -> None:
        """Start the process once and hear it until it ends."""
        self._unkillable = [each for each in self._unkillable if each.poll() is None]
        if len(self._unkillable) >= _MOST_UNKILLABLE:
            count = len(self._unkillable)
            self._problem("log_reader_unkillable", f"{count} processes cannot be ended.")
            return
        memory = own_memory()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = self._spawn(theirs.fileno(), memory)
            self._own_processes.add("logs", process.pid)
            try:
                with mmap.mmap(memory, MARK_BYTES) as marks:
                    self._hear(ours, marks)
                    self._problem("log_reader_ended", "The process ended.")
            finally:
                self._own_processes.remove(process.pid)
                self._end(process)
        finally:
            ours.close()
            os.close(memory)

    def _hear(self, channel: socket.socket, marks: mmap.mmap) -> None:
        with self._lock:
            settings = self._settings
            positions = [[*key, *position] for key, position in self._positions.items()]
        Conversation(
            channel,
            marks,
            wanted=self._wanted,
            take=self._take,
            monotonic=self._monotonic,
            hang_seconds=self._hang_seconds,
            silence_seconds=_SILENCE_SECONDS,
        ).run({"settings": asdict(settings), "positions": positions}, self._is_over)

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._renewed.is_set()

    def _spawn(self, channel: int, memory: int) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [*self._command, str(channel), str(memory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[channel, memory],
            env={**os.environ, "PYTHONPATH": path},
        )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            # In a call that cannot be interrupted; another process reads the rest.
            self._unkillable.append(process)

    def _wanted(self) -> dict[str, Any]:
        now = self._monotonic()
        hung = sorted(group for group, each in self._hung.items() if each.until > now)
        with self._lock:
            self._state = replace(self._state, hung=tuple(hung))
            return {"targets": self._targets.to_data(), "hung": hung}

    def _take(self, report: dict[str, Any]) -> None:
        if "refused" in report:
            raise _RefusedError(str(report["refused"]))
        with self._lock:
            self._totals.add(report)
            for device, inode, offset, overlap in report["positions"]:
                self._positions.pop((device, inode), None)
                self._positions[device, inode] = offset, overlap
            while len(self._positions) > _MOST_POSITIONS:
                del self._positions[next(iter(self._positions))]
            self._state = replace(
                self._state,
                has_searched=self._state.has_searched or report["searched"],
                files=report["files"],
                unread=report["unread"],
                kernel_error=report["kernel_error"],
                problem=None,
            )

    def _set_apart(self, error: HangError) -> None:
        """Leave out what hangs, each time for longer."""
        self._problem("log_reader_hung", str(error))
        if not error.group:
            return
        before = self._hung.get(error.group)
        seconds = _FIRST_HUNG_SECONDS
        if before is not None:
            seconds = min(2 * before.seconds, _LONGEST_HUNG_SECONDS)
        self._hung[error.group] = _Hung(self._monotonic() + seconds, seconds)

    def _problem(self, error_class: str, text: str) -> None:
        self._set(problem=LogReaderError(error_class, text))

    def _set(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the state
        with self._lock:
            self._state = replace(self._state, **changes)
