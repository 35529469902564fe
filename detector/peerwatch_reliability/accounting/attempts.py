"""Attempts of a job: which runs belong together, and how long each waited and ran."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from peerwatch_reliability.records import CONTINUED, JobRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_reliability.records import State

# A requeue sets the new time of submission to the end before it, in whole seconds: one each way.
_REQUEUE_SECONDS = 2.0
# Chosen: an owner who starts a failed job again does so within a day.
_RESUBMISSION_SECONDS = 86_400.0
# A scheduler that is asked now may know of ends a little later; nobody waits longer than a year.
# Both are chosen: what is beyond them is a clock that is wrong.
_SKEW_SECONDS = 300.0
_LONGEST_WAIT_SECONDS = 366 * 86_400.0
_FAILED: frozenset[State] = frozenset({"failed", "node_fail", "timeout", "out_of_memory"})

Link = Literal["first", "requeued", "resubmitted"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job and the wait before it.

    Parameters
    ----------
    row
        The scheduler's row.
    link
        How it follows the attempt before it.
    queue_start, start, end
        Unix seconds; without a start it never ran. What still runs ends now.
    gap_seconds
        Of the wait, the time that passed before its owner submitted the job again.
    suspended_seconds
        Of the time between start and end, that for which it was suspended.
    is_open
        Whether it still waits or runs.
    notes
        What is wrong with the row.
    """

    row: JobRow
    link: Link
    queue_start: float
    start: float | None
    end: float
    gap_seconds: float
    suspended_seconds: float
    is_open: bool
    notes: tuple[str, ...] = ()

    @property
    def queue_seconds(self) -> float:
        """Q: how long it waited."""
        return (self.end if self.start is None else self.start) - self.queue_start

    @property
    def run_seconds(self) -> float:
        """R + U: how long it ran, without suspensions."""
        return 0.0 if self.start is None else self.end - self.start - self.suspended_seconds

    @property
    def wall_seconds(self) -> float:
        """W = Q + R + U, from the begin of the wait to the end, without suspensions."""
        return self.end - self.queue_start - self.suspended_seconds

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the run within a cluster."""
        return self.row.job_id, self.row.order


@dataclass(frozen=True, slots=True)
class Chain:
    """All attempts at one piece of work, in their order."""

    attempts: tuple[Attempt, ...]

    @property
    def first(self) -> Attempt:
        """The first."""
        return self.attempts[0]

    @property
    def last(self) -> Attempt:
        """The last."""
        return self.attempts[-1]

    @property
    def wall_seconds(self) -> float:
        """From the begin of the first wait to the last end, without suspensions."""
        suspended = sum(each.suspended_seconds for each in self.attempts)
        return self.last.end - self.first.queue_start - suspended

    @property
    def gpus(self) -> int:
        """The most GPUs that an attempt held."""
        return max(each.row.gpus for each in self.attempts)


def chains_of(rows: Iterable[JobRow], now: float) -> list[Chain]:
    """Return the chains of attempts, by the time of their first submission.

    Parameters
    ----------
    rows
        All runs, in any order.
    now
        Unix seconds: where what is still open is cut.
    """
    by_job: defaultdict[str, list[JobRow]] = defaultdict(list)
    for row in rows:
        by_job[row.job_id].append(row)
    requeued: list[list[JobRow]] = []
    for of_job in by_job.values():
        of_job.sort(key=lambda row: (row.order, row.submit))
        requeued += _split_where_reused(of_job)
    requeued.sort(key=lambda chain: (chain[0].submit, chain[0].order))
    found = [_chain(links, now) for links in _resubmitted(requeued)]
    return sorted(found, key=lambda chain: (chain.first.row.submit, chain.first.row.order))


def _split_where_reused(rows: Sequence[JobRow]) -> list[list[JobRow]]:
    """Return runs of one number by job: a number can be given to another job later."""
    found: list[list[JobRow]] = []
    for row in rows:
        before = found[-1][-1] if found else None
        if (
            before is not None
            and before.end is not None
            and (before.state in CONTINUED or (row.continues and row.name == before.name))
            and abs(row.submit - before.end) <= _REQUEUE_SECONDS
        ):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _resubmitted(chains: Sequence[list[JobRow]]) -> list[list[tuple[JobRow, Link]]]:
    """Join what its owner started again after it had failed."""
    joined: list[list[tuple[JobRow, Link]]] = []
    # The newest failed chain of a piece of work, by what tells it from others.
    failed: dict[tuple[object, ...], list[tuple[JobRow, Link]]] = {}
    for rows in chains:
        first = rows[0]
        same = (first.user, first.name, first.work_dir, len(first.nodes), _task(first))
        links: list[tuple[JobRow, Link]] = [
            (row, "first" if row is first else "requeued") for row in rows
        ]
        before = failed.get(same) if first.name and first.user else None
        end = before[-1][0].end if before else None
        if (
            before is not None
            and end is not None
            and -_REQUEUE_SECONDS <= first.submit - end <= _RESUBMISSION_SECONDS
        ):
            before += [(first, "resubmitted"), *links[1:]]
            links = before
        else:
            joined.append(links)
        if rows[-1].state in _FAILED:
            failed[same] = links
        else:
            failed.pop(same, None)
    return joined


def _task(row: JobRow) -> str:
    """Return the number of a task within its array: one task never resubmits another."""
    return row.shown_id.partition("_")[2]


def _chain(links: Sequence[tuple[JobRow, Link]], now: float) -> Chain:
    attempts: list[Attempt] = []
    for row, link in links:
        before = attempts[-1] if attempts else None
        attempts.append(_attempt(row, link, before, now))
    return Chain(tuple(attempts))


def _attempt(row: JobRow, link: Link, before: Attempt | None, now: float) -> Attempt:
    """Return a row as an attempt; times that cannot be are mended and noted."""
    notes = []
    is_open = row.end is None
    start, end = row.start, now if row.end is None else row.end
    latest = max(end, start or 0.0)
    if latest > now + _SKEW_SECONDS:
        notes.append(f"has a time {latest - now:.0f} s after now: clocks differ")
        start, end = None if start is None else min(start, now), min(end, now)
    waited_until = end if start is None else start
    # A job that may not start yet does not wait; one that was interrupted waits since then.
    queue_start = max(row.submit, row.eligible or row.submit) if before is None else before.end
    if before is None and start is None and row.submit <= end:
        queue_start = min(queue_start, end)
    if before is None and waited_until - queue_start > _LONGEST_WAIT_SECONDS:
        notes.append("waited for more than a year: clocks differ")
        queue_start = waited_until
    gap = max(0.0, row.submit - before.end) if before is not None and link == "resubmitted" else 0.0
    if start is not None and start < queue_start:
        if start < queue_start - _REQUEUE_SECONDS:
            notes.append(f"starts {queue_start - start:.0f} s before it waits: clocks differ")
        # Where it follows another, the end of that one stands.
        queue_start = start if before is None else queue_start
        start = max(start, queue_start)
    least = queue_start if start is None else start
    if end < least:
        notes.append(f"ends {least - end:.0f} s before it starts: clocks differ")
        end = least
    suspended = row.suspended_seconds
    if start is not None and suspended > end - start:
        notes.append("was suspended for longer than it ran")
        suspended = end - start
    return Attempt(
        row, link, queue_start, start, end, min(gap, end - queue_start),
        0.0 if start is None else suspended, is_open, tuple(notes),
    )  # fmt: skip


def without_open(chain: Chain) -> Chain | None:
    """Return a chain without what has not ended; None: nothing has."""
    ended = tuple(each for each in chain.attempts if not each.is_open)
    return replace(chain, attempts=ended) if ended else None
