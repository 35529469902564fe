"""What waits for what: within a rank, and between ranks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.diagnosis.stragglers.layout import Layout
from peerwatch_detector.errors import TraceError


@dataclass(frozen=True, slots=True)
class Event:
    """Operations of the same replica that end together: a transfer, or a single operation.

    Parameters
    ----------
    members
        The operations, of different stages.
    predecessors
        Of each member, what must have ended in its own rank before it begins.
    replicas
        Whether the other replicas' same event must have begun, too.
    groups
        With ``replicas``: only those of the same number, of shape (replicas,); None: all.
    """

    members: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    replicas: bool
    groups: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """The events of a step in an order in which they can be replayed.

    Parameters
    ----------
    events
        Each after those that it waits for.
    last_uses
        For each event, the operations that no later event waits for.
    """

    events: tuple[Event, ...]
    last_uses: tuple[tuple[int, ...], ...]

    @property
    def has_groups(self) -> bool:
        """Whether some transfer is among a part of the replicas."""
        return any(event.groups is not None for event in self.events)


def schedule(
    layout: Layout,
    predecessors: list[set[int]],
    meetings: list[tuple[int, ...]],
) -> Schedule:
    """Return the events of a step in order.

    Parameters
    ----------
    layout
        The operations.
    predecessors
        Of each operation, those of its own rank that end before it begins.
    meetings
        Operations of several stages that wait for one another.

    Raises
    ------
    TraceError
        If operations wait for one another in a circle.
    """
    members: dict[int, tuple[int, ...]] = {index: (index,) for index in range(len(layout))}
    members |= {index: meeting for meeting in meetings for index in meeting}
    events = {meeting[0]: _event(layout, meeting, predecessors) for meeting in members.values()}
    order = _ordered(layout, events, members)
    last: dict[int, int] = {}
    for place, event in enumerate(order):
        for index in (*event.members, *(before for part in event.predecessors for before in part)):
            last[index] = place
    last_uses: list[list[int]] = [[] for _ in order]
    for index, place in last.items():
        last_uses[place].append(index)
    return Schedule(tuple(order), tuple(map(tuple, last_uses)))


def _event(layout: Layout, meeting: tuple[int, ...], predecessors: list[set[int]]) -> Event:
    scope = layout.kinds[meeting[0]].scope
    groups = layout.groups[meeting[0]] if scope == "group" else None
    if groups is not None and len(set(groups.tolist())) == 1:
        groups = None
    return Event(
        meeting,
        tuple(tuple(sorted(predecessors[index])) for index in meeting),
        scope in ("replicas", "all", "group"),
        groups,
    )


def _ordered(
    layout: Layout, events: dict[int, Event], members: dict[int, tuple[int, ...]]
) -> list[Event]:
    """Return events so that each comes after those it waits for (Kahn's algorithm)."""
    after: dict[int, set[int]] = {name: set() for name in events}
    waits = dict.fromkeys(events, 0)
    for name, event in events.items():
        before = {members[index][0] for part in event.predecessors for index in part}
        waits[name] = len(before)
        for other in before:
            after[other].add(name)
    ready = deque(name for name, count in waits.items() if not count)
    order = []
    while ready:
        name = ready.popleft()
        order.append(events[name])
        for other in sorted(after[name]):
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    if len(order) < len(events):
        stuck = next(name for name, count in waits.items() if count)
        raise TraceError(
            f"The operations wait for one another in a circle, {layout.describe(stuck)} among "
            "them: their order within a rank is not one that can have run; check start_ts and "
            "seq_id."
        )
    return order
