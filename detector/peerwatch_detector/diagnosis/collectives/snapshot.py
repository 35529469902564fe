"""Where every rank of a job stands in the collectives of its process groups, at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from peerwatch_detector.diagnosis.collectives.signature import Signature

# Counts move while they are read: only what is equal this much later says that something stands.
SETTLED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Group:
    """A process group.

    Parameters
    ----------
    name
        What identifies it in the job.
    members
        Its ranks.
    description
        What it is for, as the training program calls it; may be empty.
    """

    name: str
    members: frozenset[int]
    description: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """How far one rank is in one group; counts are of its collectives, from 1.

    Parameters
    ----------
    enqueued
        Last collective the host launched.
    completed
        Last that ended; None where the source cannot know.
    started
        Last that the device began; None where the source cannot know.
    signature
        What the collective in flight is; None where it is unknown.
    requests
        Work requests posted and completed; None where the source cannot know.
    """

    enqueued: int
    completed: int | None = None
    started: int | None = None
    signature: Signature | None = None
    requests: tuple[int, int] | None = None

    @property
    def in_flight(self) -> int | None:
        """The collective the rank waits for; None where it waits for none or nobody knows."""
        if self.completed is None or self.enqueued <= self.completed:
            return None
        return self.completed + 1

    @property
    def unfinished_requests(self) -> int:
        """Work requests that were posted and have not completed."""
        return 0 if self.requests is None else self.requests[0] - self.requests[1]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All positions of a job.

    Parameters
    ----------
    time
        Unix time.
    groups
        By name.
    positions
        By group and rank.
    silent
        Ranks that report nothing: that says nothing about them.
    dead
        Ranks whose process is gone.
    moving
        Ranks that still get on: neither do they wait, nor are they to blame.
    idle
        Groups that the job has not used for long: nobody waits in them.
    """

    time: float
    groups: Mapping[str, Group]
    positions: Mapping[str, Mapping[int, Position]]
    silent: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    moving: frozenset[int] = frozenset()
    idle: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[tuple[Group, Mapping[int, Position]]]:
        """Yield each group with the positions of its members, in order of name."""
        for name in sorted(self.groups):
            yield self.groups[name], self.members_of(name)

    def members_of(self, name: str) -> dict[int, Position]:
        """Return the positions of a group's members; reports of other ranks are left out."""
        members = self.groups[name].members
        found = self.positions.get(name, {})
        return {rank: position for rank, position in found.items() if rank in members}

    @property
    def ranks(self) -> frozenset[int]:
        """Every rank it knows of."""
        members = (group.members for group in self.groups.values())
        return frozenset().union(*members, self.silent, self.dead)


def settled(before: Snapshot, after: Snapshot) -> Snapshot | None:
    """Return what two snapshots agree on, or None if they are too close in time to say.

    A rank that moved in any of its groups, or that only one of them has, is ``moving`` in the
    result: neither does it wait, nor is it what others wait for.
    """
    if after.time - before.time < SETTLED_SECONDS:
        return None
    moving = {rank for rank in after.ranks if _moved(rank, before, after)}
    return replace(after, silent=after.silent - moving, moving=frozenset(moving) - after.dead)


def _moved(rank: int, before: Snapshot, after: Snapshot) -> bool:
    if (rank in before.silent) != (rank in after.silent):
        return True
    return any(
        _counts(before.positions.get(name, {}).get(rank)) != _counts(positions.get(rank))
        for name, positions in after.positions.items()
    )


def _counts(position: Position | None) -> tuple[int | None, ...]:
    if position is None:
        return ()
    return (position.enqueued, position.completed, position.started)
