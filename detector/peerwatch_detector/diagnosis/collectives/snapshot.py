"""Where every rank of a job stands in the collectives of its process groups, at one moment."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from peerwatch_detector.diagnosis.collectives.signature import Signature

# Counts move while they are read: only what is equal this much later says that something stands.
# Two readings of 5 s (``diagnosis.interval_seconds``), of ranks that are asked every 2 to 6 s.
UNCHANGED_SECONDS = 10.0
# Between the last use of a group and that of the others, from which on nobody waits in it. Chosen:
# twice the 30 s that a healthy rank may let its peers wait.
_IDLE_SECONDS = 60.0
# The collective that a host is in, and the one before, whose end it has not noted.
_WAITED_FOR = 2


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
    went_on
        Whether the rank has launched another collective, of any group, since the oldest in flight.
    """

    enqueued: int
    completed: int | None = None
    started: int | None = None
    signature: Signature | None = None
    requests: tuple[int, int] | None = None
    went_on: bool = False

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


# Without slots: what each of thousands of groups or roots asks for is kept.
@dataclass(frozen=True)
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
        Ranks that still get on, or wait for what no group counts: they are not to blame.
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

    @cached_property
    def ranks(self) -> frozenset[int]:
        """Every rank it knows of."""
        members = (group.members for group in self.groups.values())
        return frozenset().union(*members, self.silent, self.dead)

    @cached_property
    def unheard(self) -> frozenset[int]:
        """The ranks of which nothing is known that stands."""
        return self.dead | self.silent | self.moving

    @cached_property
    def launched_ahead(self) -> bool:
        """Whether a rank has more collectives of a group in flight than a host that waits for each.

        Such a host is in one, and may not have noted the end of the one before. More are in flight
        where a device runs them later, as with NCCL, or where the program keeps their handles.
        """
        return any(
            position.completed is not None and position.enqueued - position.completed > _WAITED_FOR
            for _, positions in self
            for position in positions.values()
        )


class StableCounts:
    """Remembers since when every rank has stood where it stands.

    The ranks of a job are read at different moments. What all of them show unchanged over one and
    the same stretch of time was so at one moment.
    """

    def __init__(self) -> None:
        self._since: dict[int, tuple[Hashable, float]] = {}
        self._moved: dict[str, tuple[Hashable, float]] = {}

    def update(self, snapshot: Snapshot, read_at: Mapping[int, float] | None = None) -> Snapshot:
        """Return the snapshot with the ranks that did not stand long enough as ``moving``.

        Parameters
        ----------
        snapshot
            What is known now.
        read_at
            Unix time at which each rank was read; those without one, at the snapshot's.
        """
        read = {rank: (read_at or {}).get(rank, snapshot.time) for rank in snapshot.ranks}
        horizon = min(read.values(), default=snapshot.time) - UNCHANGED_SECONDS
        before, self._since = self._since, {}
        for rank, counts in _counts(snapshot).items():
            same, since = before.get(rank, (None, 0.0))
            # A clock that was set back must not make a rank that stands a moving one.
            stood = min(since, read[rank]) if same == counts else read[rank]
            self._since[rank] = counts, stood
        moving = {rank for rank, (_, since) in self._since.items() if since > horizon}
        return replace(
            snapshot,
            silent=snapshot.silent - moving,
            moving=snapshot.moving | (moving - snapshot.dead),
            idle=snapshot.idle | self._idle(snapshot),
        )

    def _idle(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the groups that launches only are counted of, and that have long been unused."""
        before, self._moved = self._moved, {}
        for group, positions in snapshot:
            counts = tuple(position.enqueued for _, position in sorted(positions.items()))
            same = before.get(group.name, (None, 0.0))
            self._moved[group.name] = same if same[0] == counts else (counts, snapshot.time)
        last = max((since for _, since in self._moved.values()), default=0.0)
        return frozenset(
            group.name
            for group, positions in snapshot
            if last - self._moved[group.name][1] > _IDLE_SECONDS
            and all(position.completed is None for position in positions.values())
        )


def _counts(snapshot: Snapshot) -> dict[int, Hashable]:
    """Return by rank all that must not change: its counts in every group."""
    found: dict[int, list[Hashable]] = {rank: [rank in snapshot.silent] for rank in snapshot.ranks}
    for group, positions in snapshot:
        for rank, position in positions.items():
            counts = (group.name, position.enqueued, position.completed, position.started)
            found[rank].append(counts)
    return {rank: tuple(counts) for rank, counts in found.items()}
