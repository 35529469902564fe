"""The main process's side of the sampler: starts the process, hears it, and starts it again.

Whatever the process does, nothing here waits for it except a thread of its own: a counter whose
reading never returns stops the sampler and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerwatch_exporter.sampler.layout import RingLayout
from peerwatch_exporter.sampler.ring import RingReader
from peerwatch_exporter.sampler.settings import SamplerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_exporter.sampler.layout import SampledGroup
    from peerwatch_exporter.sampler.ring import Rows
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_LOG = logging.getLogger(__name__)

# It speaks once a second; silence this long is no accident.
_SILENCE_SECONDS = 5.0
# Chosen: a NIC's firmware that restarts keeps readers waiting, and comes back by itself.
_KILL_AFTER_SECONDS = 30.0
# Doubled from the first to the longest: what ends at once must not cost a start every second.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# So soon it is seen that the exporter ends; with ``_END_SECONDS`` below the 1.8 s for all of it.
_CHECK_SECONDS = 0.25
_END_SECONDS = 1.0
# A second's statistics are far less than a kilobyte per series: room for thousands.
_LONGEST_LINE_BYTES = 4 * 1024 * 1024
_READ_BYTES = 65536  # what a pipe of Linux holds
_NO_LAYOUT = RingLayout(())


class SamplerStuckError(Exception):
    """The sampler process has not spoken for seconds: it waits for a counter's file, probably."""

    error_class = "sampler_stuck"


class SamplerEndedError(Exception):
    """The sampler process ended and was started again, and has not sampled a second since."""

    error_class = "sampler_ended"


@dataclass(frozen=True, slots=True)
class SamplerState:
    """What is known of the sampler process.

    Parameters
    ----------
    layout
        What it samples.
    second
        Its last message; None before the first.
    stuck_seconds
        For how long it has not spoken, if that is too long; else 0.
    restarts
        How often it was started again.
    refused
        Why it does not sample; None if it does.
    """

    layout: RingLayout = _NO_LAYOUT
    second: Mapping[str, Any] | None = None
    stuck_seconds: float = 0.0
    restarts: int = 0
    refused: str | None = None


class Sampler:
    """The sampler of one exporter; does nothing if the settings leave it off.

    Parameters
    ----------
    config, sources
        The exporter's own. Collectors made from the same sources find this sampler.
    command
        How the process is started, without its arguments.
    settings
        The settings of the process, if not those of ``config``.
    """

    def __init__(
        self,
        config: ExporterConfig,
        sources: Sources,
        *,
        command: Sequence[str] = (sys.executable, "-m", "peerwatch_exporter.sampler"),
        settings: SamplerSettings | None = None,
    ) -> None:
        self._sources = sources
        self._command = command
        self._settings = settings or SamplerSettings.from_config(config, sources.paths.sysfs)
        self._lock = threading.Lock()
        self._state = SamplerState()
        self._heard_at = sources.monotonic()
        self._descriptor: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        if self._settings is not None:
            sources.gpus.keep_samples(self._settings.history_seconds)
        vars(sources)["_sampler"] = self

    @property
    def settings(self) -> SamplerSettings | None:
        """The settings of the process; None if the sampler is off."""
        return self._settings

    def start(self) -> None:
        """Start the process, and a thread that supervises it; returns at once."""
        if self._settings is None or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._supervise, name="sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process; returns within seconds, even if the process cannot end."""
        self._stopping.set()
        process = self._process
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join(timeout=_CHECK_SECONDS + _END_SECONDS)
        with self._lock:
            self._forget_memory()

    def state(self) -> SamplerState:
        """Return what is known now."""
        with self._lock:
            stuck = self._sources.monotonic() - self._heard_at
            if self._thread is None or stuck < _SILENCE_SECONDS:
                stuck = 0.0
            return replace(self._state, stuck_seconds=stuck)

    def burst(self, query: str) -> tuple[str, bytes]:
        """Answer a query of ``/burst``: HTTP status line and JSON. Never raises."""
        # Most nodes are never asked.
        from peerwatch_exporter.sampler.burst import answer  # noqa: PLC0415

        source = None if self._settings is None else _Source(self)
        return answer(query, source)

    def read(self, group: SampledGroup, count: int) -> Rows | None:
        """Return the newest rows of a group; None if there is no memory to read.

        Raises
        ------
        RingError
            If the memory is not what the layout says.
        """
        with self._lock:
            if self._descriptor is None:
                return None
            return RingReader(self._descriptor, group).newest(count)

    @property
    def sources(self) -> Sources:
        """Where the GPUs' samples and the clocks are."""
        return self._sources

    def _supervise(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = self._sources.monotonic()
            try:
                status: int | str = self._run()
            except OSError as error:
                status = str(error)
            if self._stopping.is_set():
                return
            lasted = self._sources.monotonic() - began
            pause = _FIRST_PAUSE_SECONDS if lasted > _LONGEST_PAUSE_SECONDS else pause
            _LOG.warning("sampler process ended status=%s lasted_seconds=%.1f", status, lasted)
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            with self._lock:
                self._state = replace(self._state, restarts=self._state.restarts + 1)

    def _run(self) -> int:
        """Start the process once and hear it until it ends; return its exit status."""
        assert self._settings is not None
        memory = os.memfd_create("peerwatch-sampler", os.MFD_CLOEXEC)
        try:
            process = self._spawn(memory)
        except OSError:
            os.close(memory)
            raise
        self._sources.own_processes.add("sampler", process.pid)
        try:
            self._hear(process, memory)
            return self._await_end(process)
        finally:
            self._sources.own_processes.remove(process.pid)
            self._process = None
            with self._lock:
                self._state = replace(self._state, second=None)
                if self._descriptor != memory:
                    os.close(memory)

    def _spawn(self, memory: int) -> subprocess.Popen[bytes]:
        assert self._settings is not None
        here = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [*self._command, self._settings.to_json(), str(memory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[memory],
            env={**os.environ, "PYTHONPATH": path},
        )
        if self._stopping.is_set():
            self._process.kill()
        return self._process

    def _hear(self, process: subprocess.Popen[bytes], memory: int) -> None:
        assert process.stdout is not None
        self._note_heard()
        waiting = b""
        with process.stdout as pipe:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            while not self._stopping.is_set():
                if not poll.poll(_CHECK_SECONDS * 1000):
                    if self._sources.monotonic() - self._heard_at > _KILL_AFTER_SECONDS:
                        process.kill()
                        return
                    continue
                read = os.read(pipe.fileno(), _READ_BYTES)
                *lines, waiting = (waiting + read).split(b"\n")
                for line in lines:
                    self._take(line, memory)
                if not read or len(waiting) > _LONGEST_LINE_BYTES:
                    return

    def _await_end(self, process: subprocess.Popen[bytes]) -> int:
        """Return the exit status, -1 if the process does not end and the sampler stops."""
        # A process that waits for a device cannot even be killed; another one would wait too.
        while True:
            last = self._stopping.is_set()
            try:
                return process.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                if last:
                    return -1
                process.kill()

    def _take(self, line: bytes, memory: int) -> None:
        try:
            message = json.loads(line)
            layout = RingLayout.from_data(message["layout"]) if "layout" in message else None
        except (ValueError, KeyError, TypeError):
            _LOG.warning("sampler process said something unknown line=%r", line[:200])
            return
        self._note_heard()
        with self._lock:
            if layout is not None:
                if self._descriptor != memory:
                    self._forget_memory()
                self._descriptor = memory
                self._state = replace(self._state, layout=layout, refused=None, second=None)
            elif "refused" in message:
                self._state = replace(self._state, refused=str(message["refused"]))
                _LOG.error("sampler refused reason=%r", message["refused"])
            else:
                self._state = replace(self._state, second=message)

    def _note_heard(self) -> None:
        with self._lock:
            self._heard_at = self._sources.monotonic()

    def _forget_memory(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Source:
    """What ``/burst`` reads of a sampler."""

    gpu_samples: Mapping[tuple[str, str, str], Sequence[tuple[float, float]]]

    def __init__(self, sampler: Sampler) -> None:
        settings = sampler.settings
        assert settings is not None
        self._sampler = sampler
        self.history_seconds = settings.history_seconds
        self.state = sampler.state()
        self.gpu_samples = sampler.sources.gpus.samples()
        self.now = sampler.sources.clock()
        self.monotonic = sampler.sources.monotonic()

    def rows(self, group: SampledGroup, count: int) -> Rows | None:
        """Return the newest rows of a group."""
        return self._sampler.read(group, count)


def sampler_of(sources: Sources) -> Sampler | None:
    """Return the sampler that was made with these sources, if there is one."""
    return vars(sources).get("_sampler")
