"""Heartbeat files: what a rank says about itself.

One file per rank, ``rank-<rank>.json``, one JSON object. Any program can write it; the hook in
``hook/sitecustomize.py`` writes it for PyTorch jobs.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.files.fingerprints import file_fingerprints
from peerwatch_exporter.sources.files.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from peerwatch_exporter.sources.files.fingerprints import Fingerprint

# A rank writes it again and again on a local disk, so an unseen change is made good soon. Some of
# the kernel's ticks of 1 to 10 ms, in which files' times are written.
_STEP_SECONDS = 0.05
# A heartbeat has a few hundred bytes; more than this was not meant as one.
_LARGEST_FILE_BYTES = 65536
_FILE_NAME = re.compile(r"rank-(0|[1-9]\d{0,6})\.json")


# By field: the kinds a value may have, and the smallest one. Others are ignored.
_WHOLE: dict[str, int] = {"step": 0, "batches": 0, "local_rank": 0, "world_size": 1, "pid": 1}
_TIMES = ("time", "last_step_time", "ended")
_LONGEST_JOB_ID = 128  # as in ``mapping``
# Of a Python class.
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What one rank said last; times are Unix times.

    ``ended`` and ``error`` are the last words of one that an exception ended: when, and the class
    of the exception.
    """

    rank: int
    time: float
    step: int | None
    last_step_time: float | None
    job_id: str
    local_rank: int | None
    world_size: int | None
    pid: int | None
    ended: float | None = None
    error: str = ""
    batches: int | None = None


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The heartbeats that could be read, and one line for each file that could not.

    ``missing`` says what is wrong with a directory that is not there.
    """

    ranks: tuple[Heartbeat, ...]
    problems: tuple[str, ...]
    missing: str | None = None


_NONE = Heartbeats((), ())


class HeartbeatFiles:
    """Reads heartbeats, each file once however often it is asked for; for any number of threads.

    Parameters
    ----------
    clock
        Unix time by the clock that the files' times come from.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Fingerprint, Heartbeat]] = {}
        self._newest = _NONE

    def read(self, directory: Path | None) -> Heartbeats:
        """Return the heartbeats of a directory; one that is not there yet holds none.

        As long as no file changes, it is the same object.
        """
        if directory is None:
            return _NONE
        with self._lock:
            missing: str | None = None
            try:
                fingerprints = file_fingerprints(directory)
            except (FileNotFoundError, NotADirectoryError) as error:
                fingerprints, missing = {}, str(error)
            found = replace(self._poll(directory, fingerprints), missing=missing)
            if found != self._newest:
                self._newest = found
            return self._newest

    def _poll(self, directory: Path, fingerprints: Mapping[str, Fingerprint | None]) -> Heartbeats:
        ranks = []
        problems = []
        known: dict[str, tuple[Fingerprint, Heartbeat]] = {}
        for name in sorted(fingerprints):
            before = self._known.get(name)
            if before is not None and before[0] == fingerprints[name]:
                known[name] = before
                ranks.append(before[1])
                continue
            match = _FILE_NAME.fullmatch(name)
            if match is None:
                continue
            now = self._clock()
            try:
                heartbeat = _read(directory / name, int(match[1]))
            except FileNotFoundError:  # removed by a rank that ended meanwhile
                continue
            except (OSError, ValueError) as error:
                problems.append(f"{directory / name}: {error}")
                continue
            ranks.append(heartbeat)
            fingerprint = fingerprints[name]
            if fingerprint is not None and fingerprint.is_stable(now, _STEP_SECONDS):
                known[name] = fingerprint, heartbeat
        self._known = known
        return Heartbeats(tuple(ranks), tuple(problems))


def read_heartbeats(directory: Path | None) -> Heartbeats:
    """Return the heartbeats of a directory; one that is not there yet holds none."""
    return HeartbeatFiles().read(directory)


def _read(path: Path, rank: int) -> Heartbeat:
    file = read_regular(str(path), _LARGEST_FILE_BYTES)
    try:
        document = json.loads(file.content)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError(f"holds {type(document).__name__}, not an object")
    own_rank = _whole(document, "rank", 0)
    if own_rank is None:
        raise ValueError("rank is missing")
    if own_rank != rank:
        raise ValueError(f"says it is rank {own_rank}")
    written, last_step_time, ended = (_time(document, name) for name in _TIMES)
    whole = {name: _whole(document, name, smallest) for name, smallest in _WHOLE.items()}
    return Heartbeat(
        rank=rank,
        # Without a time of its own, the file's age is the heartbeat's.
        time=file.written if written is None else written,
        last_step_time=last_step_time,
        job_id=_job_id(document),
        ended=ended,
        error=_error(document),
        **whole,
    )


def _whole(document: Mapping[str, object], name: str, smallest: int) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    # A script may well write 12.0 or "12"; only what is no whole number is refused.
    if isinstance(value, str | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        value = int(number) if number.is_integer() else value
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        raise ValueError(f"{name} {value!r:.80} is not a whole number of at least {smallest}")
    return value


def _time(document: Mapping[str, object], name: str) -> float | None:
    value = document.get(name)
    if value is None:
        return None
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if isinstance(value, bool) or not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name} {value!r:.80} is not a time in seconds")
    return seconds


def _error(document: Mapping[str, object]) -> str:
    """Return the class of the exception that ended the rank; nothing else is shown as a label."""
    value = document.get("error")
    return value if isinstance(value, str) and _ERROR.fullmatch(value) else ""


def _job_id(document: Mapping[str, object]) -> str:
    value = document.get("job_id", "")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"job_id {value!r:.80} is neither text nor a number")
    if len(str(value)) > _LONGEST_JOB_ID:
        raise ValueError(
            f"job_id has {len(str(value))} characters, at most {_LONGEST_JOB_ID} count"
        )
    return str(value)
