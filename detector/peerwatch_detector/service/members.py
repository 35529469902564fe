"""Which detectors are alive, and which of them evaluates which training job.

There is no database and no leader: every detector publishes that it is there and which jobs it
evaluates, reads both of all others from Prometheus, and comes to the same answer by rendezvous
hashing. Where two disagree for a while, as when one of them is cut off, both evaluate the job; the
rules count what both publish once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

# A member is gone when so many views in a row lack it: one view may miss a scrape.
_LEAST_MISSES = 2
# A member that is killed is given up within a cycle of its series' end.
REFRESHES_PER_CYCLE = 2


@dataclass(frozen=True, slots=True)
class MembershipView:
    """The group as Prometheus shows it at one time.

    Parameters
    ----------
    members
        Names of the detectors that are there.
    evaluates
        By job, those that publish its detection.
    """

    members: frozenset[str]
    evaluates: Mapping[str, frozenset[str]]


class Group:
    """The detectors that share the jobs, as one of them sees it.

    Parameters
    ----------
    own
        Name of this detector, which always counts itself.
    replication
        How many evaluate the same job.
    """

    def __init__(self, own: str, replication: int) -> None:
        self.own = own
        self.replication = replication
        self._misses: dict[str, int] = {own: 0}
        self._evaluates: Mapping[str, frozenset[str]] = {}

    @property
    def members(self) -> tuple[str, ...]:
        """Return who is taken to be there, in order of name."""
        return tuple(sorted(self._misses))

    def update(self, view: MembershipView) -> None:
        """Take in a view: who comes counts at once, who is missing only when missed again."""
        for member in self._misses.keys() | view.members:
            self._misses[member] = 0 if member in view.members else self._misses.get(member, 0) + 1
        self._misses[self.own] = 0
        self._misses = {member: n for member, n in self._misses.items() if n < _LEAST_MISSES}
        self._evaluates = view.evaluates

    def owns(self, job_id: str) -> bool:
        """Return whether this detector is among those that are to evaluate a job."""
        return self.own in owners(job_id, self._misses, self.replication)

    def keeps(self, job_id: str) -> bool:
        """Return whether a job that this detector evaluates must stay with it for now.

        It stays until all who own it have evaluated it: rather twice than not at all.
        """
        evaluates = self._evaluates.get(job_id, frozenset())
        return self.owns(job_id) or not evaluates.issuperset(
            owners(job_id, self._misses, self.replication)
        )

    def share(self, jobs: Iterable[str], evaluated: Collection[str]) -> set[str]:
        """Return the jobs to evaluate.

        Parameters
        ----------
        jobs
            All that run.
        evaluated
            Those of which this detector publishes a detection.
        """
        return {
            job_id
            for job_id in jobs
            if self.owns(job_id) or (job_id in evaluated and self.keeps(job_id))
        }


def owners(job_id: str, members: Iterable[str], replication: int) -> tuple[str, ...]:
    """Return who evaluates a job, the first in line first.

    By highest random weight (rendezvous hashing, Thaler and Ravishankar 1998): a member that comes
    or goes moves only its own jobs.
    """
    ranked = sorted(members, key=lambda member: (_weight(job_id, member), member), reverse=True)
    return tuple(ranked[:replication])


def _weight(job_id: str, member: str) -> bytes:
    # The length keeps apart what would be one text when joined.
    text = f"{len(member)}:{member}{job_id}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
