"""What a synchronous training job does when: phases, and the speed of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from math import inf


class Phase(IntEnum):
    """What the ranks do at a time."""

    TRAIN = 0
    STALL = 1  # every rank waits for data
    CHECKPOINT = 2  # every rank writes
    WAIT = 3  # the ranks spin in a collective that one of them does not join
    HALT = 4  # the processes are gone


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time in which the job does one thing at one speed.

    Parameters
    ----------
    begin, end
        Seconds after the start of the simulation; infinite where it has no bound.
    phase
        What it does.
    speed
        Steps per second, relative to the usual.
    """

    begin: float
    end: float
    phase: Phase = Phase.TRAIN
    speed: float = 1.0


@dataclass(slots=True)
class Timeline:
    """A job that trains at its usual speed but for what is added.

    Attributes
    ----------
    phases
        Stretches in another phase, as they were added; a later one covers what was there before.
    speeds
        The same of other speeds.
    """

    phases: list[Stretch] = field(default_factory=list)
    speeds: list[Stretch] = field(default_factory=list)

    def add(self, phase: Phase, begin: float, end: float = inf) -> None:
        """Let the job do something else for a while."""
        self.phases.append(Stretch(begin, end, phase=phase))

    def slow(self, speed: float, begin: float, end: float = inf) -> None:
        """Let the job train at another speed for a while."""
        self.speeds.append(Stretch(begin, end, speed=speed))

    def at(self, time: float) -> tuple[Phase, float]:
        """Return what the job does at a time, and its speed."""
        phase, speed = Phase.TRAIN, 1.0
        for stretch in self.phases:
            phase = stretch.phase if stretch.begin <= time < stretch.end else phase
        for stretch in self.speeds:
            speed = stretch.speed if stretch.begin <= time < stretch.end else speed
        return phase, speed

    def stretches(self) -> list[Stretch]:
        """Return all of time, in order, as stretches that do not overlap."""
        added = (*self.phases, *self.speeds)
        bounds = {bound for stretch in added for bound in (stretch.begin, stretch.end)}
        edges = [-inf, *sorted(bounds - {-inf, inf})]
        return [
            Stretch(begin, end, *self.at(begin))
            for begin, end in zip(edges, [*edges[1:], inf], strict=True)
        ]
