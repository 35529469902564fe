"""Lets a policy decide about failed jobs, and counts what it costs and saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_demo.retries.failed_job import MOST_RETRIES
from peerwatch_demo.retries.reasons import SUCCESS_POINTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_demo.retries.failed_job import FailedJob
    from peerwatch_demo.retries.policies import Policy


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy did with some jobs.

    Parameters
    ----------
    jobs
        How many failed at first.
    retries
        How often one was started again.
    recovered
        How many ended well by that.
    wasted
        GPU time of retries that failed, in units of the mean time until a failure.
    wasted_by_reason
        The same by the reason of the failure.
    """

    jobs: int
    retries: int
    recovered: int
    wasted: float
    wasted_by_reason: dict[str, float]

    def success_loss(self, best: Outcome) -> float:
        """Return how many percent of all jobs that end well are lost against another policy.

        All jobs, also those that never failed: as Sibylla counts, for whom never to retry costs
        4.5 %.
        """
        return SUCCESS_POINTS * (best.recovered - self.recovered) / self.jobs


def replay(jobs: Sequence[FailedJob], policy: Policy) -> Outcome:
    """Return what a policy does with jobs, each retried ``MOST_RETRIES`` times at most."""
    retries = recovered = 0
    wasted: dict[str, float] = {}
    for job in jobs:
        for number in range(1, MOST_RETRIES + 1):
            if not policy(job, number):
                break
            retries += 1
            attempt = job.attempts[number]
            if attempt.succeeds:
                recovered += 1
                break
            wasted[job.reason] = wasted.get(job.reason, 0.0) + attempt.gpu_seconds
    return Outcome(len(jobs), retries, recovered, sum(wasted.values()), wasted)
