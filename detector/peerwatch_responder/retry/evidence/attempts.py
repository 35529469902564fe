"""Finds where in a log the newest attempt begins: a file may hold several runs, of several jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# What launchers write first.
_LAUNCH = re.compile(
    rb"Starting elastic_operator with launch configs|^\+? ?(?:torchrun|deepspeed|srun|mpirun) "
    rb"|\brestart_count=(?!0\b)\d{1,4}",
    re.MULTILINE,
)
# One of them is in whatever the pattern above matches.
_LAUNCH_WORDS = (
    b"Starting elastic_operator",
    b"torchrun ",
    b"deepspeed ",
    b"srun ",
    b"mpirun ",
    b"restart_count=",
)
_JOB = re.compile(
    rb"\*\*\* (?:STEP|JOB) (\d{1,12})[.+ ]|\bSLURM_JOB(?:_?ID)=(\d{1,12})"
    rb"|srun: job (\d{1,12}) (?:queued|has been allocated)"
    rb"|Granted job allocation (\d{1,12})|Submitted batch job (\d{1,12})"
)


# One of them is in whatever the pattern above matches.
_JOB_WORDS = (
    b"*** STEP ",
    b"*** JOB ",
    b"SLURM_JOB",
    b"srun: job ",
    b"job allocation ",
    b"batch job",
)


class Part(NamedTuple):
    """The newest attempt in a log.

    Parameters
    ----------
    start, end
        Where it stands in the text, in bytes.
    job_ids
        The jobs that the whole text names, in their order.
    """

    start: int
    end: int
    job_ids: tuple[str, ...]


def newest_attempt(text: bytes, errors: Iterable[int], job_id: str = "") -> Part:
    """Return the part of a text that is about one attempt.

    Parameters
    ----------
    text
        Of a log.
    errors
        Where errors stand in it, in bytes, ascending: a launch after one is a new attempt.
    job_id
        The job that is meant; empty, or not named: the last one.
    """
    start, end, ids = _of_job(text, job_id)
    failed = [offset for offset in errors if start <= offset < end]
    if not failed or not any(word in text for word in _LAUNCH_WORDS):
        return Part(start, end, ids)
    for match in _LAUNCH.finditer(text, start, end):
        # Each of many nodes has a launcher, and all begin before anything fails.
        if failed and failed[0] < match.start():
            start = match.start()
            failed = [offset for offset in failed if offset >= start]
    return Part(start, end, ids)


def _of_job(text: bytes, job_id: str) -> tuple[int, int, tuple[str, ...]]:
    if not any(word in text for word in _JOB_WORDS):
        return 0, len(text), ()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for match in _JOB.finditer(text):
        name = next(group for group in match.groups() if group).decode()
        first.setdefault(name, match.start())
        line_end = text.find(b"\n", match.end())
        last[name] = len(text) if line_end < 0 else line_end + 1
    ids = tuple(sorted(first, key=first.__getitem__))
    if len(ids) < 2:
        return 0, len(text), ids
    wanted = job_id.partition("_")[0]
    place = ids.index(wanted) if wanted in ids else len(ids) - 1
    # Between the last word about one and the first about the next nothing says whose it is.
    start = last[ids[place - 1]] if place else 0
    end = last[ids[place]] if place < len(ids) - 1 else len(text)
    return min(start, first[ids[place]]), end, ids
