"""Incidents of jobs: the work that each lost and how long the job took to recover from it.

Recovery is counted as MegaScale does, from the end of the failed attempt until the next one makes
progress; and the time that GPUs were idle while a fault was looked for, as Aegis does, from the
stall of the job to the end of the attempt, which frees the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_reliability.accounting.attempts import Chain
    from peerwatch_reliability.accounting.attribution import Attribution
    from peerwatch_reliability.accounting.goodput import Key
    from peerwatch_reliability.accounting.time_use import TimeUse


class Incident(NamedTuple):
    """One interruption of a job by the infrastructure.

    Parameters
    ----------
    key
        The attempt that was interrupted.
    time
        Unix seconds of its end.
    cause, node
        The root.
    gpus
        Of the attempt.
    lost_seconds
        Expected work that was not saved.
    recovery_seconds
        Until the job made progress again; None: it has not been started again.
    idle_seconds
        For which the job stood still before the attempt ended; None: no stall was seen.
    """

    key: Key
    time: float
    cause: str
    node: str
    gpus: int
    lost_seconds: float
    recovery_seconds: float | None
    idle_seconds: float | None


def incidents_of(
    chains: Sequence[Chain],
    why: Mapping[Key, Attribution],
    uses: Mapping[Key, TimeUse],
    stalls: Mapping[str, Sequence[tuple[float, float]]],
) -> list[Incident]:
    """Return all incidents, by time.

    Parameters
    ----------
    chains, why, uses
        Attempts, why they ended, and what their time went into.
    stalls
        By job, first and last time at which it stood still, in Unix seconds.
    """
    found = []
    for chain in chains:
        for number, attempt in enumerate(chain.attempts):
            attribution = why.get(attempt.key)
            if attribution is None or not attribution.is_failure_of_infrastructure:
                continue
            use = uses[attempt.key]
            following = chain.attempts[number + 1] if number + 1 < len(chain.attempts) else None
            recovery = None
            if following is not None and following.start is not None:
                restart = uses[following.key].restart.expected
                recovery = following.start - attempt.end + restart
            begins = [
                first
                for first, last in stalls.get(attempt.row.job_id, ())
                if first <= attempt.end and last >= attempt.end - 300.0
            ]
            idle = attempt.end - max(min(begins), attempt.start or 0.0) if begins else None
            found.append(
                Incident(
                    attempt.key,
                    attempt.end,
                    attribution.cause.name,
                    attribution.node,
                    attempt.row.gpus,
                    use.lost.expected,
                    recovery,
                    idle,
                )
            )
    return sorted(found, key=lambda incident: incident.time)
