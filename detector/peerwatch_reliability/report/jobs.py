"""The books of single jobs: those that held the most GPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerwatch_reliability.accounting.time_use import ettr_of
from peerwatch_reliability.report.values import ettr_values

if TYPE_CHECKING:
    from peerwatch_reliability.accounting.attempts import Attempt, Chain
    from peerwatch_reliability.report.books import Books

_HOUR = 3600.0
# A job in a crash loop has hundreds; as many as each list of the report shows (document.py).
_SHOWN_ATTEMPTS = 20


def job_values(books: Books, most: int) -> list[dict[str, Any]]:
    """Return the jobs with the most GPU time as JSON can hold them, the largest first.

    Of each its ETTR and the three measures of Aegis: GPU time that was idle while faults were
    diagnosed, restarts, and the share of its time above its usual step time (P_deg); and what the
    time of each of its last attempts went into. What is not known is null.
    """
    # An attempt is of one incident at most.
    idle = {
        each.key: each.idle_seconds * each.gpus / _HOUR
        for each in books.incidents
        if each.idle_seconds is not None
    }
    found = []
    for chain in sorted(books.chains, key=_gpu_seconds, reverse=True)[:most]:
        row = chain.last.row
        keys = [each.key for each in chain.attempts]
        of_job = [idle[key] for key in keys if key in idle]
        found.append(
            {
                "job_id": row.job_id,
                "name": row.name,
                "user": row.user,
                "gpus": chain.gpus,
                "gpu_hours": _gpu_seconds(chain) / _HOUR,
                "ettr": ettr_values(ettr_of(books.uses[key] for key in keys)),
                "restarts": len(chain.attempts) - 1,
                "idle_gpu_hours": sum(of_job) if of_job else None,
                "degradation": books.degradation.get(row.job_id),
                "attempts": [
                    _attempt_values(each, books) for each in chain.attempts[-_SHOWN_ATTEMPTS:]
                ],
            }
        )
    return found


def _attempt_values(attempt: Attempt, books: Books) -> dict[str, Any]:
    """Return an attempt: times are Unix seconds, and Q, R and U add up to the wall time."""
    use, why = books.uses[attempt.key], books.why[attempt.key]
    return {
        "state": attempt.row.state,
        "link": attempt.link,
        "origin": why.origin,
        "cause": why.cause.name if why.is_failure_of_infrastructure else None,
        "nodes": list(attempt.row.nodes),
        "queued_at": attempt.queue_start,
        "started_at": attempt.start,
        "ended_at": None if attempt.is_open else attempt.end,
        "wall_seconds": attempt.wall_seconds,
        "queue_seconds": use.queue,
        "productive_seconds": use.productive.expected,
        "unproductive_seconds": use.unproductive.expected,
        "suspended_seconds": attempt.suspended_seconds,
    }


def _gpu_seconds(chain: Chain) -> float:
    return sum(each.run_seconds * each.row.gpus for each in chain.attempts)
