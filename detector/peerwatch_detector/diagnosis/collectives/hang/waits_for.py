"""Which rank waits for which others: the waits-for graph of a job that stands."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from peerwatch_detector.diagnosis.collectives.hang.components import components
from peerwatch_detector.diagnosis.collectives.hang.late_ends import with_ends
from peerwatch_detector.diagnosis.collectives.signature import Signature, disagreement
from peerwatch_detector.diagnosis.collectives.snapshot import Group, Position, Snapshot

Reason = Literal["launch", "start", "mismatch", "network", "order", "turn"]


class Wait(NamedTuple):
    """What the ranks of a group that are at one collective wait for.

    Parameters
    ----------
    reason
        For others to ``launch`` it or to ``start`` it; for nobody, because ranks called different
        collectives (``mismatch``) or because all have started (``network``). ``order``: for
        what comes before it, on the devices of others or on the own. ``turn``: for those that
        launched it after another one, which they are in.
    group
        The name of the group.
    sequence
        Number of the collective in the group.
    """

    reason: Reason
    group: str
    sequence: int


Vertex = int | Wait
Edges = dict[Vertex, list[Vertex]]


def waits_for(snapshot: Snapshot) -> Edges:
    """Return the waits-for graph: from ranks to what they wait for, and on to other ranks.

    The ranks of one wait share it as a vertex, so that a group of n ranks costs n edges.

    Parameters
    ----------
    snapshot
        As ``StableCounts`` returns it.

    Notes
    -----
    A rank waits in a group if it launched more than completed, and its device has started what it
    launched. It waits for the members that are dead, silent or have launched less. If there are
    none: for nobody if members called different collectives; for those whose device has not
    started it; else for the network.
    """
    edges: Edges = {rank: [] for rank in snapshot.dead}
    unclear: list[tuple[Wait, list[int]]] = []
    unstarted: list[tuple[Wait, list[int]]] = []
    turns = _turns(snapshot)
    for wait, waiting, missing, starts_known in _waits(snapshot, as_shown=turns):
        if wait.reason == "order":
            unstarted.append((wait, waiting))
        elif wait.reason == "network" and not starts_known:
            if wait.group in turns:
                holding = [rank for rank in waiting if rank in turns[wait.group]]
                others = [rank for rank in waiting if rank not in holding]
                _add(edges, wait._replace(reason="turn"), others, holding)
            else:
                unclear.append((wait, waiting))
        else:
            _add(edges, wait, waiting, missing)
    _add_unclear(edges, unclear)
    if not edges:
        for wait, waiting in unstarted:
            _add(edges, wait, waiting, [])
    return edges


def ranks_of(vertices: Iterable[Vertex]) -> tuple[int, ...]:
    """Return the ranks among vertices, in ascending order."""
    return tuple(sorted(vertex for vertex in vertices if isinstance(vertex, int)))


def _add(edges: Edges, wait: Wait, waiting: list[int], missing: list[int]) -> None:
    edges[wait] = list(missing)
    for rank in waiting:
        edges.setdefault(rank, []).append(wait)


def _waits(
    snapshot: Snapshot, as_shown: Container[str] | None = None
) -> Iterator[tuple[Wait, list[int], list[int], bool]]:
    """Yield each wait, who waits, for whom, and whether the source knows starts.

    Parameters
    ----------
    snapshot
        The job.
    as_shown
        Groups of which ends that were noted late are not added; None: of none.
    """
    for group, shown in snapshot:
        if group.name in snapshot.idle:
            continue
        raw = as_shown is None or group.name in as_shown
        positions = shown if raw else with_ends(group, shown, ahead=snapshot.launched_ahead)
        for sequence, ranks in sorted(_waiting(snapshot, positions).items()):
            members = _Members(group, positions, sequence, snapshot)
            yield (*members.wait(ranks), members.starts_known)


def _turns(snapshot: Snapshot) -> dict[str, list[int]]:
    """Return the groups whose ranks launched the same collectives in different order.

    Hosts launch ahead of devices, so a rank may be in several; the one that it launched last has
    to wait for the others. Where that goes round in a circle none of them can end, unless they are
    on streams that run side by side, which nobody knows here.

    Returns
    -------
    dict
        By group, the ranks that hold it up, as they are in another one of the circle first.
    """
    stuck = [
        (wait.group, ranks)
        for wait, ranks, _, starts_known in _waits(snapshot)
        if wait.reason == "network" and not starts_known
    ]
    of_rank: dict[int, set[str]] = {}
    for group, ranks in stuck:
        for rank in ranks:
            of_rank.setdefault(rank, set()).add(group)
    holders: dict[str, list[int]] = {}
    for rank, own in sorted(of_rank.items()):
        last = [group for group in own if not snapshot.positions[group][rank].went_on]
        if len(own) > 1 and len(last) == 1:
            holders.setdefault(last[0], []).append(rank)
    after = {
        group: set().union(*(of_rank[rank] for rank in ranks)) - {group}
        for group, ranks in holders.items()
    }
    circling = {group for found in components(after) if len(found) > 1 for group in found}
    return {
        group: [rank for rank in holders[group] if len(circling & of_rank[rank]) > 1]
        for group in circling
    }


def _add_unclear(edges: Edges, waits: list[tuple[Wait, list[int]]]) -> None:
    """Add the waits of which nobody knows whether it is for the network or for a device.

    Hosts launch ahead of devices: a member that waits for another rank elsewhere holds up the
    group by that, whatever else it may wait for here.
    """
    elsewhere = {vertex for vertex, successors in edges.items() if successors}
    # Of a long chain each round holds up one wait more: only those of ranks that the last round
    # held up are looked at.
    of_rank: dict[int, list[int]] = {}
    for number, (_, ranks) in enumerate(waits):
        for rank in ranks:
            of_rank.setdefault(rank, []).append(number)
    left = dict(enumerate(waits))
    new: Iterable[Vertex] = elsewhere
    while held := sorted(
        {number for rank in ranks_of(new) for number in of_rank.get(rank, ()) if number in left}
    ):
        added: list[int] = []
        for number in held:
            wait, ranks = left.pop(number)
            holding = [rank for rank in ranks if rank in elsewhere]
            waiting = [rank for rank in ranks if rank not in elsewhere]
            _add(edges, wait._replace(reason="order"), waiting, holding)
            elsewhere.update(waiting)
            added += waiting
        new = added
    for wait, ranks in left.values():
        _add(edges, wait, ranks, [])


def _waiting(snapshot: Snapshot, positions: Mapping[int, Position]) -> dict[int, list[int]]:
    """Return the ranks that wait, by the number of the collective they are at."""
    unheard = snapshot.unheard
    heard = {rank: position for rank, position in positions.items() if rank not in unheard}
    # Where only launches are counted, who launched more than the last one waits for it.
    last = min((position.enqueued for position in heard.values()), default=0)
    found: dict[int, list[int]] = {}
    for rank, position in sorted(heard.items()):
        sequence = position.in_flight
        if position.completed is None and position.enqueued > last:
            sequence = last + 1
        if sequence is not None:
            found.setdefault(sequence, []).append(rank)
    return found


class _Members:
    """The members of a group, as they stand to one collective of it."""

    def __init__(
        self,
        group: Group,
        positions: Mapping[int, Position],
        sequence: int,
        snapshot: Snapshot,
    ) -> None:
        self.group = group
        self.positions = positions
        self.sequence = sequence
        self.unheard = snapshot.unheard

    @property
    def starts_known(self) -> bool:
        """Whether every member that has not completed it says if it has started it."""
        return all(position.started is not None for _, position in self._pending())

    def wait(self, ranks: list[int]) -> tuple[Wait, list[int], list[int]]:
        """Return what ``ranks`` wait for, who of them does, and for whom.

        A device that has not started the collective does not wait for its peers, but is busy.
        """
        behind = {rank for rank, position in self._pending() if self._not_started(position)}
        started = [rank for rank in ranks if rank not in behind]
        if not started:
            return self._named("order"), ranks, []
        absent = [rank for rank in sorted(self.group.members) if not self._launched(rank)]
        if absent:
            return self._named("launch"), started, absent
        if disagreement(self.signatures()) is not None:
            return self._named("mismatch"), started, []
        if behind:
            return self._named("start"), started, sorted(behind)
        return self._named("network"), started, []

    def signatures(self) -> dict[int, Signature]:
        """Return what each member that is at the collective says it is."""
        return {
            rank: position.signature
            for rank, position in self._pending()
            if position.signature is not None and position.in_flight == self.sequence
        }

    def _named(self, reason: Reason) -> Wait:
        return Wait(reason, self.group.name, self.sequence)

    def _launched(self, rank: int) -> bool:
        position = self.positions.get(rank)
        if rank in self.unheard:
            return False
        if position is None:
            # Whoever takes part in no collective of a group has none to show; in the first it
            # is missed. That it does not show later ones is a gap in the report.
            return self.sequence > 1
        return position.enqueued >= self.sequence

    def _not_started(self, position: Position) -> bool:
        return position.started is not None and position.started < self.sequence

    def _pending(self) -> Iterator[tuple[int, Position]]:
        for rank, position in sorted(self.positions.items()):
            if position.completed is None or position.completed < self.sequence:
                yield rank, position


def signatures(snapshot: Snapshot, wait: Wait) -> dict[int, Signature]:
    """Return what each rank at a collective says it is."""
    group, shown = snapshot.groups[wait.group], snapshot.members_of(wait.group)
    positions = with_ends(group, shown, ahead=snapshot.launched_ahead)
    return _Members(group, positions, wait.sequence, snapshot).signatures()
