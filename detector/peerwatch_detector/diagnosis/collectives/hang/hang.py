"""Which rank or link a job that stands waits for."""

from __future__ import annotations

from dataclasses import dataclass

from peerwatch_detector.diagnosis.collectives.hang.components import sinks
from peerwatch_detector.diagnosis.collectives.hang.waits_for import (
    Edges,
    Vertex,
    Wait,
    signatures,
    waits_for,
)
from peerwatch_detector.diagnosis.collectives.signature import disagreement
from peerwatch_detector.diagnosis.collectives.snapshot import Snapshot
from peerwatch_detector.diagnosis.verdict import ClassName


@dataclass(frozen=True, slots=True)
class Hang:
    """One root of what a job waits for.

    Parameters
    ----------
    class_name
        What is the matter.
    ranks
        Who is named, in ascending order; empty where only the group is known.
    victims
        The ranks that wait for it, directly or through others, in ascending order.
    decided
        False where the evidence leaves it open.
    wait
        The collective that most ranks wait in directly; None where none does.
    """

    class_name: ClassName
    ranks: tuple[int, ...]
    victims: tuple[int, ...]
    decided: bool
    wait: Wait | None


def hangs(snapshot: Snapshot) -> list[Hang]:
    """Return the roots of a job that stands, those most ranks wait for first.

    Parameters
    ----------
    snapshot
        As ``StableCounts`` returns it.

    Notes
    -----
    The roots are the strongly connected components of the waits-for graph that wait for nothing
    else. A rank that waits is a victim, and never named but with all others of a cycle, whose
    fault is the order of their calls.
    """
    edges = waits_for(snapshot)
    found = [
        root
        for component, reached in sinks(edges)
        if (root := _root(snapshot, edges, component, reached)) is not None
    ]
    named = {rank for root in found if root.decided for rank in root.ranks}
    found = [_without(root, named) for root in found]
    return sorted(found, key=lambda root: (root.class_name != "rank_exited", -len(root.victims)))


def _without(root: Hang, named: set[int]) -> Hang:
    victims = tuple(rank for rank in root.victims if rank not in named)
    return Hang(root.class_name, root.ranks, victims, root.decided, root.wait)


def _root(
    snapshot: Snapshot, edges: Edges, component: list[Vertex], reached: frozenset[Vertex]
) -> Hang | None:
    victims = tuple(sorted(vertex for vertex in reached if isinstance(vertex, int)))
    ranks = tuple(sorted(vertex for vertex in component if isinstance(vertex, int)))
    if not ranks:
        (wait,) = (vertex for vertex in component if isinstance(vertex, Wait))
        return _terminal(snapshot, wait, victims)
    direct = _longest(edges, [*reached, *component], ranks)
    if len(ranks) == 1:
        return _rank(snapshot, ranks[0], victims, direct)
    if any(isinstance(vertex, Wait) and vertex.reason == "order" for vertex in component):
        return None  # hosts that ran ahead of their devices look the same
    decided = not any(isinstance(each, Wait) and each.reason == "turn" for each in component)
    return Hang("call_order", ranks, victims, decided, direct)


def _rank(
    snapshot: Snapshot, rank: int, victims: tuple[int, ...], wait: Wait | None
) -> Hang | None:
    if rank in snapshot.dead:
        return Hang("rank_exited", (rank,), victims, True, wait)
    if rank in snapshot.moving or wait is None:
        return None
    if rank in snapshot.silent:
        return Hang("no_data", (rank,), victims, False, wait)
    if wait.reason == "start":
        return Hang("launched_not_started", (rank,), victims, True, wait)
    return Hang("not_launched", (rank,), victims, not _may_wait(snapshot, rank), wait)


def _terminal(snapshot: Snapshot, wait: Wait, victims: tuple[int, ...]) -> Hang | None:
    if wait.reason == "mismatch":
        different = disagreement(signatures(snapshot, wait))
        assert different is not None
        ranks, decided = different
        others = tuple(rank for rank in victims if rank not in ranks)
        return Hang("mismatch", ranks, others, decided, wait)
    if wait.reason == "order":
        # None of them has started it: what their devices do instead, no collective says.
        return Hang("launched_not_started", (), victims, False, wait) if victims else None
    positions = snapshot.members_of(wait.group)
    unfinished = [rank for rank in sorted(positions) if positions[rank].unfinished_requests > 0]
    ranks = tuple(unfinished) if len(unfinished) == 1 else ()
    others = tuple(rank for rank in victims if rank not in ranks)
    return Hang("network_stuck", ranks, others, bool(ranks), wait)


def _longest(edges: Edges, vertices: list[Vertex], ranks: tuple[int, ...]) -> Wait | None:
    """Return the wait for one of the ranks that most ranks are in, one for its start first."""
    waiting: dict[Wait, int] = {}
    for vertex in vertices:
        if isinstance(vertex, int):
            for wait in edges.get(vertex, ()):
                if isinstance(wait, Wait):
                    waiting[wait] = waiting.get(wait, 0) + 1
    direct = [wait for wait in waiting if any(rank in edges[wait] for rank in ranks)]
    return min(
        direct, key=lambda wait: (wait.reason != "start", -waiting[wait], wait), default=None
    )


def _may_wait(snapshot: Snapshot, rank: int) -> bool:
    """Whether a rank may wait in a group whose source counts launches only.

    It does not where others have launched more.
    """
    for group, positions in snapshot:
        position = positions.get(rank)
        if position is None or position.completed is not None or group.name in snapshot.idle:
            continue
        if all(other.enqueued <= position.enqueued for other in positions.values()):
            return True
    return False
