"""What is known of a rank's collectives, in the same form whichever source knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


@dataclass(slots=True)
class Totals:
    """One kind of collective of one group, counted since the first reading.

    Parameters
    ----------
    launched, completed
        Number of collectives; ``completed`` is None where the source cannot know it.
    seconds
        Duration of the completed ones; None if the source has none.
    size, bus
        Bytes of the completed ones, and the bytes that crossed the slowest link for them; None if
        not known.
    """

    launched: float = 0
    completed: float | None = None
    seconds: float | None = None
    size: float | None = None
    bus: float | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """The oldest collective that was launched and has not completed.

    ``launched`` is a Unix time. ``sequence`` and what follows are None and empty where only its
    age is known.
    """

    launched: float
    sequence: int | None = None
    collective: str = ""
    input: str = ""
    output: str = ""
    dtype: str = ""


class Block(NamedTuple):
    """Successive collectives: the sequence number after the last, how many, mean arrival."""

    end: int
    collectives: int
    arrival: float


@dataclass(frozen=True, slots=True)
class GroupTelemetry:
    """One process group as one rank sees it; what a source does not know is None or empty.

    Parameters
    ----------
    launched, started, completed
        Sequence number of the newest collective that was.
    in_flight
        None if nothing is; not known if ``completed`` is None.
    block
        The newest finished block.
    work_requests
        Posted and completed, counted since the first reading.
    """

    group: str
    launched: int | None = None
    started: int | None = None
    completed: int | None = None
    in_flight: InFlight | None = None
    totals: Mapping[str, Totals] = field(default_factory=dict)
    block: Block | None = None
    work_requests: tuple[float, float] | None = None


class GroupInfo(NamedTuple):
    """A process group: its description, and its members as ranges of ranks such as ``0-3,8``."""

    name: str
    description: str
    members: str
    size: int


class RankReport(NamedTuple):
    """What one source says of one rank.

    Parameters
    ----------
    job_id, rank
        Which rank.
    source
        Its name in ``collective_source_up``.
    up
        Whether it answered for this rank; None if the rank has no such source.
    time
        When (Unix time).
    groups
        What is known of its groups.
    """

    job_id: str
    rank: int
    source: str
    up: bool | None
    time: float
    groups: tuple[GroupTelemetry, ...] = ()


def completed_by(group: GroupTelemetry, other: GroupTelemetry) -> GroupTelemetry:
    """Return a group with what another source knows of it and the first one does not.

    Sequence numbers are taken from one source or the other, since they may count differently;
    duration, bytes and bus bytes of a collective too, because only together they are a bandwidth.
    """
    totals = dict(group.totals)
    for collective, theirs in other.totals.items():
        ours = totals.get(collective)
        if ours is None:
            totals[collective] = theirs
        elif ours.seconds is None and theirs.seconds is not None:
            totals[collective] = replace(
                ours, seconds=theirs.seconds, size=theirs.size, bus=theirs.bus
            )
    merged = replace(
        group,
        totals=totals,
        block=group.block or other.block,
        work_requests=group.work_requests or other.work_requests,
    )
    if group.launched is not None or group.completed is not None:
        return merged
    return replace(
        merged,
        launched=other.launched,
        started=other.started,
        completed=other.completed,
        in_flight=other.in_flight,
    )
