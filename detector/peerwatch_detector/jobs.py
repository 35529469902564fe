"""Which training jobs run, on which nodes, and which of those nodes became absent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

# A node whose exporter is there but no longer tells of the job has left it; one missed scrape
# has not. Two intervals of 15 s.
_LEAVES_AFTER = 30.0
# An ended job is watched this much longer: a node that died may have ended it. Chosen: twice the
# 60 s after which an absent node is a finding.
_LINGERS = 120.0
# A vanished node of a job that goes on is a finding for so long, if another has joined in its
# place, as where hosts are replaced: long enough to page for it and to be seen. Chosen: the
# group_interval of the page (rules/alertmanager.example.yaml).
_REPLACED_AFTER = 600.0
# If none has: a job that needs the node has been ended by then, by NCCL's time-out (10 to 30
# minutes by default) or by a person, so one that still runs does without. Twice the longer one.
_DEPARTED_AFTER = 3600.0
# After an outage of the monitoring targets are scraped again one after the other, within an
# interval of at most a minute: for so long, who is back still tells with whom a node vanished.
_RETURNED_FOR = 60.0
# A server whose answers are partial for longer says all that it will: jobs end by it again. Nodes
# never vanish by it. Chosen: as long as a vanished node is waited for.
_PARTIAL_FOR = 3600.0


@dataclass(frozen=True, slots=True)
class Job:
    """One training job as the detector sees it now.

    Parameters
    ----------
    job_id
        The scheduler's id.
    nodes
        Every node of the job, in order of name, silent ones included.
    absent_since
        Unix time at which each absent node was last there.
    running
        False once no node tells of the job any more.
    roles
        What each node does in the job, by node, where nodes differ by design; only nodes of one
        role are peers. Empty where all do the same.
    """

    job_id: str
    nodes: tuple[str, ...]
    absent_since: dict[str, float] = field(default_factory=dict)
    running: bool = True
    roles: Mapping[str, str] = field(default_factory=dict)
    back_since: Mapping[str, float] = field(default_factory=dict)

    def groups(self, least: int) -> dict[str, tuple[str, ...]]:
        """Return the nodes of every role that has at least ``least``, in order of name."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            if node in self.roles:
                found.setdefault(self.roles[node], []).append(node)
        return {role: tuple(found[role]) for role in sorted(found) if len(found[role]) >= least}


@dataclass(slots=True)
class _Member:
    last_listed: float
    present: float
    # After which a node counts as one that joined in place of another; unknown of those that were
    # there when the job was first seen.
    joined: float = -math.inf
    # Its last absence: when it was last there before, and when it was there again.
    vanished: float = -math.inf
    returned: float = -math.inf


class JobTable:
    """Remembers jobs and their nodes from one discovery to the next."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, _Member]] = {}
        self._updated = -math.inf
        self._whole = -math.inf

    def learn(self, pairs: set[tuple[str, str]], now: float) -> None:
        """Take in (job_id, node) pairs known from before, as after a restart.

        Who is not there at the next ``update`` has been silent since ``now``.
        """
        before = math.nextafter(now, 0)
        for job_id, node in pairs:
            self._members.setdefault(job_id, {}).setdefault(node, _Member(now, before))

    def skip(self, seconds: float) -> None:
        """Take out time in which Prometheus could not be asked: it says nothing about a node."""
        self._updated += seconds
        self._whole += seconds
        for members in self._members.values():
            for member in members.values():
                member.last_listed += seconds
                member.present += seconds
                member.joined += seconds
                member.vanished += seconds
                member.returned += seconds

    def update(
        self, running: set[tuple[str, str]], present: set[str], now: float, *, partial: bool = False
    ) -> list[Job]:
        """Take in what Prometheus says now and return the jobs to evaluate.

        Parameters
        ----------
        running
            (job_id, node) pairs that tell of a job now.
        present
            Nodes that can be scraped now.
        now
            Unix time.
        partial
            Whether Prometheus says that something is missing: then it says nothing about whom it
            does not tell of.
        """
        if partial:
            self._hold(running, present, now)
        else:
            self._whole = now
        known = frozenset(self._members)
        for job_id, node in running:
            joined = now if job_id in known else -math.inf
            members = self._members.setdefault(job_id, {})
            member = members.get(node)
            if member is None:
                member = members[node] = _Member(now, now, joined)
            member.last_listed = now
        for members in self._members.values():
            for node, member in members.items():
                if node in present:
                    if member.present < self._updated:
                        member.vanished, member.returned = member.present, now
                    member.present = now
        self._updated = now
        self._forget(now)
        return [self._job(job_id, now) for job_id in sorted(self._members)]

    def _hold(self, running: set[tuple[str, str]], present: set[str], now: float) -> None:
        """Let who is missing in a partial answer stay what it was in the one before."""
        if not math.isfinite(self._updated):
            return
        ends_jobs = now - self._whole > _PARTIAL_FOR

        def held(time: float) -> float:
            # A sum would differ from now by its rounding.
            return now if time == self._updated else time + now - self._updated

        for job_id, members in self._members.items():
            for node, member in members.items():
                if node not in present:
                    member.present = held(member.present)
                if (job_id, node) not in running and not ends_jobs:
                    member.last_listed = held(member.last_listed)

    def _forget(self, now: float) -> None:
        for job_id, members in list(self._members.items()):
            last = _last_listed(members)
            if now - last > _LINGERS:
                del self._members[job_id]
            elif last >= now:
                left = [
                    node
                    for node, member in members.items()
                    if now - member.last_listed > _LEAVES_AFTER and member.present == now
                ]
                for node in left:
                    del members[node]
                for node in _departed(members, now):
                    del members[node]

    def _job(self, job_id: str, now: float) -> Job:
        members = self._members[job_id]
        end = _last_listed(members)
        silent = {
            node: member.present
            for node, member in members.items()
            # Of an ended job only those count that vanished before it ended, or with it.
            if member.present < now and member.present <= end + _LEAVES_AFTER
        }
        back = {
            node: member.vanished
            for node, member in members.items()
            if member.present == now and now - member.returned <= _RETURNED_FOR
        }
        return Job(job_id, tuple(sorted(members)), silent, running=end == now, back_since=back)


def _last_listed(members: Mapping[str, _Member]) -> float:
    """Return when any of a job's nodes last told of it."""
    last: float = max(map(attrgetter("last_listed"), members.values()))
    return last


def _departed(members: Mapping[str, _Member], now: float) -> list[str]:
    """Return the absent nodes that a running job has gone on without for long enough."""
    absent = sorted(
        (member.present, node) for node, member in members.items() if member.present < now
    )
    if not absent:
        return []
    # Each that joined stands in for one that was there before it, the longest absent first; what
    # replaced a host may be listed already when that is seen for the last time.
    joined = sorted(member.joined for member in members.values() if member.present == now)
    found = []
    for since, node in absent:
        while joined and joined[0] < since:
            joined.pop(0)
        limit = _DEPARTED_AFTER
        if joined:
            joined.pop(0)
            limit = _REPLACED_AFTER
        if now - since > limit:
            found.append(node)
    return found
