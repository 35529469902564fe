"""What is known of a rank's collectives, in the same form whichever source knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
