"""Heartbeat files: what a rank says about itself.

One file per rank, ``rank-<rank>.json``, one JSON object. Any program can write it; the hook in
``hook/sitecustomize.py`` writes it for PyTorch jobs.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# A heartbeat has a few hundred bytes; more than this was not meant as one.
_LARGEST_FILE_BYTES = 65536
_FILE_NAME = re.compile(r"rank-(0|[1-9]\d{0,6})\.json")


# By field: the kinds a value may have, and the smallest one. Others are ignored.
_WHOLE: dict[str, int] = {"step": 0, "local_rank": 0, "world_size": 1, "pid": 1}
_TIMES = ("time", "last_step_time")
_LONGEST_JOB_ID = 128


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What one rank said last; times are Unix times."""

    rank: int
    time: float
    step: int | None
    last_step_time: float | None
    job_id: str
    local_rank: int | None
    world_size: int | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The heartbeats that could be read, and one line for each file that could not."""

    ranks: tuple[Heartbeat, ...]
    problems: tuple[str, ...]


def read_heartbeats(directory: Path | None) -> Heartbeats:
    """Return the heartbeats of a directory; one that is not there yet holds none."""
    ranks = []
    problems = []
    if directory is not None and directory.is_dir():
        for path in sorted(directory.iterdir()):
            match = _FILE_NAME.fullmatch(path.name)
            if match is None:
                continue
            try:
                ranks.append(_read(path, int(match[1])))
            except FileNotFoundError:  # removed by a rank that ended meanwhile
                continue
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
    return Heartbeats(tuple(ranks), tuple(problems))


def _read(path: Path, rank: int) -> Heartbeat:
    status = path.stat()
    if status.st_size > _LARGEST_FILE_BYTES:
        raise ValueError(f"has {status.st_size} bytes, a heartbeat at most {_LARGEST_FILE_BYTES}")
    document = json.loads(path.read_bytes())
    if not isinstance(document, dict):
        raise ValueError(f"holds {type(document).__name__}, not an object")
    said = _whole(document, "rank", 0)
    if said is None:
        raise ValueError("rank is missing")
    if said != rank:
        raise ValueError(f"says it is rank {said}")
    time, last_step_time = (_time(document, name) for name in _TIMES)
    whole = {name: _whole(document, name, smallest) for name, smallest in _WHOLE.items()}
    return Heartbeat(
        rank=rank,
        # Without a time of its own, the file's age is the heartbeat's.
        time=status.st_mtime if time is None else time,
        last_step_time=last_step_time,
        job_id=_job_id(document),
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


def _job_id(document: Mapping[str, object]) -> str:
    value = document.get("job_id", "")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"job_id {value!r:.80} is neither text nor a number")
    if len(str(value)) > _LONGEST_JOB_ID:
        raise ValueError(
            f"job_id has {len(str(value))} characters, at most {_LONGEST_JOB_ID} count"
        )
    return str(value)
