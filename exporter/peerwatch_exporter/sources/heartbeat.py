"""Heartbeat files: what a rank says about itself.

One file per rank, ``rank-<rank>.json``, one JSON object. Any program can write it; the hook in
``hook/sitecustomize.py`` writes it for PyTorch jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

# A heartbeat has a few hundred bytes; more than this was not meant as one.
_LARGEST_FILE_BYTES = 65536
_FILE_NAME = re.compile(r"rank-(0|[1-9]\d{0,6})\.json")


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    rank: int = Field(ge=0)
    step: int | None = Field(default=None, ge=0)
    time: float | None = Field(default=None, ge=0)
    last_step_time: float | None = Field(default=None, ge=0)
    job_id: str = Field(default="", max_length=128, coerce_numbers_to_str=True)
    local_rank: int | None = Field(default=None, ge=0)
    world_size: int | None = Field(default=None, ge=1)
    pid: int | None = Field(default=None, ge=1)


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
    try:
        document = _Document.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place} {first['msg']}".strip()) from error
    if document.rank != rank:
        raise ValueError(f"says it is rank {document.rank}")
    fields = document.model_dump()
    # Without a time of its own, the file's age is the heartbeat's.
    fields["time"] = status.st_mtime if document.time is None else document.time
    return Heartbeat(**fields)
