"""The main process's side of DCGM: starts the process that asks it, hears it, starts it again."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.dcgm.session import DcgmSessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.dcgm.session import Values

COMMAND = (sys.executable, "-m", "peerwatch_exporter.sources.dcgm")
# It speaks once a second; the first connection may take longer on a busy node.
_SILENCE_SECONDS = 30.0
# Doubled from the first to the longest: what ends at once must not cost a start every second.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# Half of its period; with ``_END_SECONDS`` below the 1.8 s that the exporter has to end.
_POLL_SECONDS = 0.5
_END_SECONDS = 1.0
# Chosen: one may be an accident; after some, DCGM is what hangs, and each more only takes memory.
_MOST_UNKILLABLE = 4
# A dozen values of each GPU are a kilobyte or so.
_LONGEST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DcgmReading:
    """What DCGM last said.

    Parameters
    ----------
    values
        By uuid, the value of each field; empty before the first answer.
    at
        When that was (monotonic seconds); None before the first answer.
    problem
        Why DCGM cannot be read now; None if it can.
    """

    values: Values
    at: float | None = None
    problem: DcgmSessionError | None = None


class DcgmProcess:
    """Has DCGM asked in another process.

    Parameters
    ----------
    address, bindings
        As of the settings.
    sources
        For the clock and the exporter's own processes.
    command
        How the process is started; the parent and what is to be asked are added.
    silence_seconds
        A process that says nothing for this long hangs.
    """

    def __init__(
        self,
        address: str,
        bindings: Path | None,
        sources: Sources,
        *,
        command: Sequence[str] = COMMAND,
        silence_seconds: float = _SILENCE_SECONDS,
    ) -> None:
        self._asked = [address, *([] if bindings is None else [str(bindings)])]
        self._monotonic: Callable[[], float] = sources.monotonic
        self._own_processes = sources.own_processes
        self._command = command
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._reading = DcgmReading({})
        self._unkillable: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a thread that starts the process and hears it; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._supervise, name="dcgm", daemon=True)
            self._thread.start()

    def leave(self) -> None:
        """Have the process ended; returns at once."""
        self._stopping.set()

    def stop(self) -> None:
        """End the process; returns within seconds, even if the process cannot end."""
        self.leave()
        if self._thread is not None:
            self._thread.join(timeout=2 * _END_SECONDS)

    def read(self) -> DcgmReading:
        """Return what is known now; waits for nobody."""
        with self._lock:
            return self._reading

    def _supervise(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = self._monotonic()
            try:
                self._run()
            except (DcgmSessionError, OSError, ValueError, TypeError, KeyError) as error:
                self._lost(error)
            if self._monotonic() - began > _LONGEST_PAUSE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _run(self) -> None:
        """Start the process once and hear it until it ends or hangs."""
        self._unkillable = [each for each in self._unkillable if each.poll() is None]
        if len(self._unkillable) >= _MOST_UNKILLABLE:
            count = len(self._unkillable)
            raise DcgmSessionError("dcgm_unkillable", f"{count} processes cannot be ended.")
        process = self._spawn()
        self._own_processes.add("dcgm", process.pid)
        try:
            self._hear(process)
        finally:
            self._own_processes.remove(process.pid)
            self._end(process)

    def _spawn(self) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [*self._command, str(os.getpid()), *self._asked],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        """Take lines until the process ends."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        heard, rest = self._monotonic(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not self._stopping.is_set():
                if not selector.select(_POLL_SECONDS):
                    if self._monotonic() - heard > self._silence_seconds:
                        raise DcgmSessionError(
                            "dcgm_hung", f"DCGM says nothing for {self._silence_seconds:g} s."
                        )
                    continue
                data = os.read(descriptor, 1 << 16)
                if not data:
                    raise DcgmSessionError("dcgm_ended", "The process that asks DCGM ended.")
                heard = self._monotonic()
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > _LONGEST_LINE_BYTES:
                    raise ValueError("a line without an end")
                for line in lines:
                    self._take(json.loads(line))

    def _take(self, message: dict[str, object]) -> None:
        if "error" in message:
            raise DcgmSessionError(str(message["error"]), str(message["detail"]))
        found = message["values"]
        if not isinstance(found, dict):
            raise TypeError("values are no mapping")
        values = {
            uuid: {int(field): float(value) for field, value in fields.items()}
            for uuid, fields in found.items()
        }
        with self._lock:
            self._reading = DcgmReading(values, self._monotonic())

    def _lost(self, error: Exception) -> None:
        if not isinstance(error, DcgmSessionError):
            error = DcgmSessionError("dcgm_bad_answer", f"The process that asks DCGM: {error!r}.")
        with self._lock:
            self._reading = DcgmReading({}, None, error)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            # In a call that cannot be interrupted.
            self._unkillable.append(process)
        if process.stdout is not None:
            process.stdout.close()
