"""Reads the Flight Recorder of one rank again and again, in a thread of its own.

A rank that stands still lets its reader wait, and nobody else.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.collectives.errors import CollectiveSourceError
from peerwatch_exporter.sources.collectives.flight_recorder import parse_dump, ring_seconds
from peerwatch_exporter.sources.collectives.groups_file import read_groups
from peerwatch_exporter.sources.collectives.tally import Tally
from peerwatch_exporter.sources.collectives.telemetry import GroupInfo
from peerwatch_exporter.sources.collectives.unix_http import NotFoundError, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from peerwatch_exporter.settings.jobs import CollectivesConfig
    from peerwatch_exporter.sources.collectives.groups_file import GroupsFile
    from peerwatch_exporter.sources.collectives.telemetry import GroupTelemetry

_LOG = logging.getLogger(__name__)

# Chosen: an answer takes tens of milliseconds (docs/benchmarks.md), and much longer where a rank is
# kept from running; then the next reading is due.
TIMEOUT_SECONDS = 3.0
# Rings of 16,000 entries; torch's own has 2,000, which are 1 MB.
LARGEST_ANSWER_BYTES = 8 * 2**20
# Making the answer costs the training process 22 to 44 ns of CPU time per byte, by how busy the
# host is (docs/benchmarks.md). With this pause, 3 s after 512 collectives and 10 s after torch's
# own 2,000, that is 0.2 to 0.4 % of a CPU. Limited so that a hang is still seen.
_PAUSE_SECONDS_PER_BYTE = 1.2e-5
_LONGEST_PAUSE_SECONDS = 10.0
# A ring that is written slowly loses nothing until it has gone round once: it is read when it has
# gone so far (the rest is for late readings), and less often costs less. A hang is two equal
# readings 10 s apart, told within 60 s.
_SHARE_OF_RING = 0.75
_LONGEST_UNHURRIED_SECONDS = 6.0
# The recorder of NCCL, in CUDA builds of torch, and the one of the other back ends.
_NCCL_HANDLER = "dump_nccl_trace_json"
_HANDLER = "fr_trace_json"
_OTHER_PREFIX = "gloo:"
_PARSING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Reading:
    """What one round of reading gave.

    Parameters
    ----------
    up
        Whether the recorder answered; None if the process has none.
    time
        When that was (Unix time).
    groups, infos
        What is known of the groups, and what they are, by name.
    problem
        What is wrong, if anything is.
    """

    up: bool | None
    time: float
    groups: tuple[GroupTelemetry, ...] = ()
    infos: Mapping[str, GroupInfo] | None = None
    problem: CollectiveSourceError | None = None


class RecorderReader:
    """The Flight Recorder of one rank.

    Parameters
    ----------
    socket_path, groups_path
        What the hook made.
    config
        How often, and how much.
    clock
        Unix time.
    """

    def __init__(
        self,
        socket_path: Path,
        groups_path: Path,
        config: CollectivesConfig,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._socket = socket_path
        self._groups_path = groups_path
        self._config = config
        self._clock = clock
        self._process: object = None
        self._handlers: tuple[str, ...] = ()
        self._tallies: dict[str, Tally] = {}
        self._reading: Reading | None = None
        self._bytes = 0
        # Of the fastest ring, from its oldest entry to its newest; 0 while none has gone round.
        self._ring_seconds = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it reads still."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def reading(self) -> Reading | None:
        """What the newest round gave; None before the first has ended."""
        return self._reading

    @property
    def period_seconds(self) -> float:
        """Time from one reading to the next: longer after a long answer, and of a slow ring."""
        pause = min(_LONGEST_PAUSE_SECONDS, self._bytes * _PAUSE_SECONDS_PER_BYTE)
        unhurried = min(_LONGEST_UNHURRIED_SECONDS, _SHARE_OF_RING * self._ring_seconds)
        return max(self._config.interval_seconds, pause, unhurried)

    def start(self) -> None:
        """Start to read."""
        self._thread = threading.Thread(
            target=self._run, name=f"collectives-{self._socket.stem}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the answer it waits for; returns at once."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            self._reading = self.read()
            took = time.monotonic() - began
            self._ended.wait(self.period_seconds - took)

    def read(self) -> Reading:
        """Return what one round of reading gives."""
        self._bytes = 0
        infos: Mapping[str, GroupInfo] | None = None
        try:
            file = read_groups(self._groups_path)
            if file is not None:
                infos = file.groups
                self._note_process(file)
                if file.unavailable:
                    raise CollectiveSourceError("recorder_unavailable", file.unavailable)
            return self._read_recorder(infos or {})
        except CollectiveSourceError as error:
            up = None if error.error_class in ("recorder_unavailable", "garbled_groups") else False
            return Reading(up, self._clock(), (), infos, error)
        except Exception as error:  # a thread that ended would say nothing any more
            _LOG.exception("flight recorder not read socket=%r", str(self._socket))
            problem = CollectiveSourceError("recorder_garbled", f"{self._socket}: {error!r}")
            return Reading(False, self._clock(), (), infos, problem)

    def _note_process(self, file: GroupsFile) -> None:
        if file.pid != self._process:
            self._process = file.pid
            self._handlers = ()
            for tally in self._tallies.values():
                tally.restart()

    def _read_recorder(self, infos: Mapping[str, GroupInfo]) -> Reading:
        if not self._handlers:
            self._handlers = self._find_handlers()
        now = self._clock()
        groups: list[GroupTelemetry] = []
        known = dict(infos)
        problem = None
        rings = []
        for handler in self._handlers:
            body = self._ask("POST", handler)
            tally = self._tallies.setdefault(handler, Tally(self._config.max_groups))
            # Parsed, a long answer takes ten times its size: one at a time.
            with _PARSING:
                dump = parse_dump(body)
                rings.append(ring_seconds(dump))
                for name, (description, size) in dump.members.items():
                    known.setdefault(name, GroupInfo(name, description, "", size))
                try:
                    tally.update(dump, now, lambda name: _size(known.get(name)))
                except CollectiveSourceError as error:
                    problem = error
            # Where NCCL has its own recorder, the other one has the same groups' other back end.
            prefix = _OTHER_PREFIX if len(self._handlers) > 1 and handler == _HANDLER else ""
            for group in tally.groups():
                groups.append(replace(group, group=prefix + group.group))
                if prefix and group.group in known:
                    known[prefix + group.group] = known[group.group]
        self._ring_seconds = min((seconds for seconds in rings if seconds > 0), default=0.0)
        return Reading(True, now, tuple(groups), known, problem)

    def _find_handlers(self) -> tuple[str, ...]:
        try:
            listed = json.loads(self._ask("GET", ""))
        except (ValueError, RecursionError):
            listed = None
        if not isinstance(listed, list):
            raise CollectiveSourceError(
                "recorder_garbled", f"{self._socket} does not list its handlers: no worker server"
            )
        found = tuple(name for name in (_NCCL_HANDLER, _HANDLER) if name in listed)
        if not found:
            raise CollectiveSourceError(
                "recorder_unavailable",
                f"{self._socket} has no Flight Recorder among its {len(listed)} handlers; it came "
                "with torch 2.5 for NCCL, and later for gloo",
            )
        return found

    def _ask(self, method: str, handler: str) -> bytearray:
        try:
            body = ask(
                self._socket,
                method,
                f"/handler/{handler}",
                timeout_seconds=TIMEOUT_SECONDS,
                most_bytes=LARGEST_ANSWER_BYTES,
            )
        except NotFoundError as error:
            self._handlers = ()
            raise CollectiveSourceError(
                "recorder_garbled", f"{self._socket} has no handler {handler!r}"
            ) from error
        self._bytes += len(body)
        return body


def _size(info: GroupInfo | None) -> int | None:
    return None if info is None else info.size
