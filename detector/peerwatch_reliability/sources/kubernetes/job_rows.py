"""Runs of a job from the runs of its pods.

A job whose pods work together is interrupted when the first of them ends badly, and runs again once
those that took their place run beside the others. Pods that end because of it, such as by a
collective's time-out half an hour later, are of the same interruption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.records import JobRow
from peerwatch_reliability.sources.kubernetes.pod_runs import STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_reliability.records import State
    from peerwatch_reliability.sources.kubernetes.pod_runs import PodEnd, PodRun

# The time-out of NCCL's process groups is 10 minutes, of gloo's 30; some minutes to end in.
_COLLATERAL_SECONDS = 2400.0
# The node that fails is known to be lost a little after its peers have noticed: as in outages.py.
_TELLING_SECONDS = 120.0
# A controller waits for at most 6 minutes before it makes a pod again; some more to be scheduled.
_RECREATED_SECONDS = 600.0
# Pods that are made so long after the others join a job that runs already. Chosen: those of one job
# are made within seconds, or minutes where quota is short.
_JOINING_SECONDS = 1800.0
# Pods that are deleted so soon after the first succeeded are not needed any more. Chosen: ranks of
# one job end within seconds of each other, and some then write for minutes.
_DONE_SECONDS = 300.0
_TELLING: tuple[PodEnd, ...] = (
    "node_fail", "preempted", "out_of_memory", "failed", "requeued", "gone",
)  # fmt: skip


class Work(NamedTuple):
    """What is the same in all runs of a job.

    Parameters
    ----------
    job_id
        As the exporters have it.
    namespace, name, kind
        Of its controller.
    submit
        When it was submitted, in Unix seconds; its pods may be made later.
    is_timeout
        Whether it ended by its own deadline.
    """

    job_id: str
    namespace: str
    name: str
    kind: str
    submit: float | None
    is_timeout: bool


class _Break(NamedTuple):
    time: float
    victims: list[PodRun]


def rows_of(work: Work, runs: Sequence[PodRun]) -> list[JobRow]:
    """Return the runs of a job in their order; the row's ``order`` counts from 1.

    Parameters
    ----------
    work
        The job.
    runs
        All runs of its pods.
    """
    breaks = _breaks(runs)
    found: list[JobRow] = []
    largest = 0
    hurt: set[PodRun] = set()
    since, until = float("-inf"), float("inf")
    for number in range(len(breaks) + 1):
        broken = breaks[number] if number < len(breaks) else None
        until = broken.time if broken else float("inf")
        members = [
            each
            for each in runs
            if each.start is not None
            and each.start < until
            and (each.end is None or each.end > since)
            and each not in hurt
        ]
        hurt.update(broken.victims if broken else ())
        together = [each for each in members if each.end is None or each.end >= until]
        # Where most of it was missing it did not run yet; it only waited on.
        if broken and found and 2 * len(together) <= largest:
            continue
        row = _row(work, runs, members, broken, since, found[-1] if found else None)
        if row is not None:
            found.append(row)
            largest = max(largest, len(together))
        since = until
    return found


def _breaks(runs: Sequence[PodRun]) -> list[_Break]:
    """Return the interruptions, each with the runs that ended by it."""
    succeeded = [each.end for each in runs if each.how == "completed" and each.end is not None]
    found: list[_Break] = []
    ended = [each for each in runs if each.end is not None and each.start is not None]
    for run in sorted(ended, key=lambda each: each.end or 0.0):
        end, start = run.end or 0.0, run.start or 0.0
        if run.how == "completed" or (
            run.how == "gone" and any(0 <= end - each <= _DONE_SECONDS for each in succeeded)
        ):
            continue
        # The first: what took the place of the first victim may have ended since as well.
        of = next(
            (b for b in found if start < b.time and end - b.time <= _COLLATERAL_SECONDS), None
        )
        if of is None:
            found.append(_Break(end, [run]))
        else:
            of.victims.append(run)
    return found


def _row(
    work: Work,
    runs: Sequence[PodRun],
    members: Sequence[PodRun],
    broken: _Break | None,
    since: float,
    before: JobRow | None,
) -> JobRow | None:
    """Return the run between two interruptions; None: there was none."""
    if not members:
        waiting = [each for each in runs if each.start is None and each.end is None]
        if broken or not waiting:
            return None
        made = min(each.created for each in waiting)
        return _job_row(work, before, made, None, None, "running", waiting)
    fresh = [each for each in members if (each.start or 0.0) >= since]
    # Without any that took the place of what ended it goes on with fewer.
    first = min((each.created for each in fresh), default=since)
    joined = [each for each in members if each.created <= first + _JOINING_SECONDS]
    start = max(max((each.start or 0.0 for each in joined), default=since), since)
    # Its controller may have tried in vain before.
    made = min((each.created for each in runs if since - 1 <= each.created <= start), default=first)
    if broken:
        goes_on = any(
            broken.time - 1 <= each.created <= broken.time + _RECREATED_SECONDS for each in runs
        )
        end, state = broken.time, _state(broken, goes_on=goes_on, is_timeout=work.is_timeout)
        return _job_row(work, before, made, min(start, end), end, state, members)
    ends = [each.end for each in members if each.end is not None]
    if len(ends) < len(members):
        return _job_row(work, before, made, start, None, "running", members)
    return _job_row(work, before, made, min(start, max(ends)), max(ends), "completed", members)


def _state(broken: _Break, *, goes_on: bool, is_timeout: bool) -> State:
    """Return what the first of those that ended say together."""
    last = broken.time + _TELLING_SECONDS
    first = {each.how for each in broken.victims if (each.end or 0.0) <= last}
    how = next(each for each in _TELLING if each in first)
    if goes_on:
        return "requeued" if how == "gone" else STATES[how]
    return "timeout" if is_timeout and how in {"gone", "failed"} else STATES[how]


def _job_row(
    work: Work,
    before: JobRow | None,
    made: float,
    start: float | None,
    end: float | None,
    state: State,
    members: Sequence[PodRun],
) -> JobRow:
    submit, continues = made, False
    if before is None:
        submit = min(made, work.submit if work.submit is not None else made)
    elif before.end is not None and made - before.end <= _RECREATED_SECONDS:
        submit, continues = before.end, before.state != "completed"
    by_pod = {each.pod: each for each in members}
    return JobRow(
        job_id=work.job_id,
        shown_id=work.job_id,
        order=1 if before is None else before.order + 1,
        user=work.namespace,
        name=work.name,
        work_dir=work.kind,
        state=state,
        submit=submit,
        eligible=submit,
        start=start,
        end=end,
        nodes=tuple(sorted({each.node for each in members if each.node})),
        gpus=sum(each.gpus for each in by_pod.values()),
        continues=continues,
    )
