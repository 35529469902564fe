"""Slurm's accounting of jobs: every run of every job that touched a window of time.

Without ``-D`` sacct hides all runs of a job but the last, and with them the one that lost its node.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.records import JobRow
from peerwatch_reliability.sources.slurm.host_list import first_nodes_of, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerwatch_reliability.records import State, Window

# No name holds it but on purpose, and then it could pass for rows of other jobs: Slurm is asked
# with one that nobody can know.
SEPARATOR = "\x1f"
# Texts of users stand between numbers, so that a line break in one is seen: the last is a number.
_FIELDS = (
    *("JobIDRaw", "JobID", "User", "State", "Submit", "Eligible", "Start", "End", "Suspended"),
    *("AllocTRES", "NodeList", "JobName", "WorkDir", "Comment", "SubmitLine", "DBIndex"),
)
_EXCLUDED = re.compile(r"(?:^|\s)(?:--exclude[=\s]|-x\s?)\s*([\w\-.,\[\]]+)")
_STATES: dict[str, State] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "OUT_OF_MEMORY": "out_of_memory",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "RUNNING": "running",
    "PENDING": "running",
    "SUSPENDED": "running",
    # It ended as it was, and goes on with other nodes: the next row is of the same job.
    "RESIZING": "requeued",
}
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]*)?=([0-9]{1,9})(?![0-9])")
_NUMBER = re.compile(r"[0-9]{1,18}")
_DURATION = re.compile(
    r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,6}(?:\.[0-9]{1,9})?)"
)
# The year 5138: what is later is no time.
_LAST_TIME = 10**11
# Chosen: an owner who excludes more means none of them (see ``_excluded``).
_MOST_EXCLUDED = 1000


def sacct_arguments(window: Window, separator: str = SEPARATOR) -> list[str]:
    """Return what to ask for all runs that touched a window."""
    first, last = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(each)) for each in (window.start, window.end)
    )
    # A state with -s would need its own way of looking; without it all that touched are printed.
    return [
        *("--allusers", "--duplicates", "--allocations", "--parsable2", "--noconvert"),
        *("--noheader", f"--starttime={first}", f"--endtime={last}"),
        *(f"--delimiter={separator}", f"--format={','.join(_FIELDS)}"),
    ]


class SacctRows(NamedTuple):
    """What sacct told.

    Parameters
    ----------
    rows
        Runs of jobs.
    unreadable
        Rows that could not be read.
    """

    rows: list[JobRow]
    unreadable: int


def read_sacct(
    lines: Iterable[str], gpus_per_node: int = 0, separator: str = SEPARATOR
) -> SacctRows:
    """Return the rows of sacct's lines.

    Parameters
    ----------
    lines
        As ``sacct`` prints them for ``sacct_arguments``.
    gpus_per_node
        GPUs of a node where Slurm does not account them (``AccountingStorageTRES``); 0: none.
    separator
        That which ``sacct_arguments`` asked for.
    """
    found: list[JobRow] = []
    unreadable = 0
    for fields in _records(lines, separator):
        row = None if fields is None else _row(fields, gpus_per_node)
        if row is None:
            unreadable += 1
        else:
            found.append(row)
    return SacctRows(found, unreadable)


def _records(lines: Iterable[str], separator: str) -> Iterator[Sequence[str] | None]:
    """Yield the fields of each record; None for one that is not whole."""
    begin = re.compile(rf"[0-9]+{re.escape(separator)}")
    parts: list[str] = []
    separators = 0
    wanted = len(_FIELDS) - 1
    for line in lines:
        count = line.count(separator)
        if parts and separators + count > wanted and begin.match(line):
            # The one before was never ended.
            yield None
            parts, separators = [], 0
        if not parts and not line:
            continue
        parts.append(line)
        separators += count
        if separators < wanted:
            continue
        # A name may hold a line break; the last field, a number, does not.
        fields = "\n".join(parts).split(separator)
        yield fields if separators == wanted else None
        parts, separators = [], 0
    if parts:
        yield None


def _row(fields: Sequence[str], gpus_per_node: int) -> JobRow | None:
    (job_id, shown_id, user, state, submit, eligible, start, end, suspended, tres, nodes, name,
     folder, comment, submit_line, order) = fields  # fmt: skip
    submitted = _seconds(submit)
    if not (_NUMBER.fullmatch(job_id) and _NUMBER.fullmatch(order)) or submitted is None:
        return None
    # "CANCELLED by 1000": the word before the blank is the state.
    known = _STATES.get(state.partition(" ")[0], "other")
    where = nodes_of(nodes)
    ended = _seconds(end)
    return JobRow(
        job_id,
        shown_id,
        int(order),
        intern(user),
        intern(name),
        intern(folder),
        known,
        submitted,
        _seconds(eligible),
        _seconds(start),
        None if known == "running" else ended if ended is not None else submitted,
        _duration(suspended),
        where,
        _gpus(tres) or gpus_per_node * len(where),
        intern(comment),
        _excluded(submit_line),
    )


@lru_cache(maxsize=20_000)
def _excluded(submit_line: str) -> tuple[str, ...]:
    """Return the nodes that an owner did not want, by the command that submitted the job.

    The command is the owner's own text: who excludes more than anybody would means none of them.
    """
    found: list[str] = []
    for each in _EXCLUDED.findall(submit_line):
        found += first_nodes_of(each, _MOST_EXCLUDED + 1 - len(found))
        if len(found) > _MOST_EXCLUDED:
            return ()
    return tuple(found)


def _seconds(text: str) -> float | None:
    """Return a time; None for ``Unknown``, ``None`` and 0, by which Slurm means neither."""
    return float(text) if _NUMBER.fullmatch(text) and 0 < int(text) <= _LAST_TIME else None


def _duration(text: str) -> float:
    """Return the seconds of ``[days-]hours:minutes:seconds``; 0 for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return 0.0
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds


def _gpus(tres: str) -> int:
    """Return the GPUs of ``AllocTRES``: the whole, or the sum of those of each type."""
    whole, typed = 0, 0
    for kind, count in _GPUS.findall(tres):
        if kind:
            typed += int(count)
        else:
            whole = int(count)
    return whole or typed
