"""Which rank or link a job that stands waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from peerwatch_detector.diagnosis.collectives.hang.components import sinks
from peerwatch_detector.diagnosis.collectives.hang.waits_for import (
    Edges,
    Vertex,
    Wait,
    ranks_of,
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
    graph = _Graph(snapshot, edges)
    found = [
        root
        for component, reached in sinks(edges)
        if (root := _root(graph, component, reached)) is not None
    ]
    named = {rank for root in found if root.decided for rank in root.ranks}
    return sorted(
        _without(found, named),
        key=lambda root: (root.class_name != "rank_exited", -len(root.victims)),
    )


def _without(found: Sequence[Hang], named: Container[int]) -> Iterator[Hang]:
    """Yield the roots, without who is named among their victims."""
    # Roots that the same ranks wait for still share one tuple of them.
    kept: dict[int, tuple[int, ...]] = {}
    for root in found:
        key = id(root.victims)
        if key not in kept:
            kept[key] = tuple(rank for rank in root.victims if rank not in named)
        yield Hang(root.class_name, root.ranks, kept[key], root.decided, root.wait)


class _Graph:
    """A waits-for graph, and what is asked of it for each of its roots.

    There may be as many roots as ranks, which the same ranks wait for: what is the same for
    several of them is found once.
    """

    def __init__(self, snapshot: Snapshot, edges: Edges) -> None:
        self.snapshot = snapshot
        self._edges = edges
        self._for_rank: dict[int, list[Wait]] = {}
        for wait, ranks in edges.items():
            for rank in ranks:
                if isinstance(wait, Wait) and isinstance(rank, int):
                    self._for_rank.setdefault(rank, []).append(wait)
        self._victims: dict[frozenset[Vertex], tuple[int, ...]] = {}
        self._counts: dict[frozenset[Vertex], Counter[Wait]] = {}

    def victims(self, reached: frozenset[Vertex]) -> tuple[int, ...]:
        """Return the ranks among the vertices that reach a root."""
        if reached not in self._victims:
            self._victims[reached] = ranks_of(reached)
        return self._victims[reached]

    def longest(
        self, component: Iterable[Vertex], reached: frozenset[Vertex], ranks: Iterable[int]
    ) -> Wait | None:
        """Return the wait for one of the ranks that most ranks are in, one for its start first."""
        if reached not in self._counts:
            self._counts[reached] = self._waiting(reached)
        counts, own = self._counts[reached], self._waiting(component)
        direct = {
            wait: count
            for rank in ranks
            for wait in self._for_rank.get(rank, ())
            if (count := counts[wait] + own[wait])
        }
        return min(
            direct, key=lambda wait: (wait.reason != "start", -direct[wait], wait), default=None
        )

    @cached_property
    def may_wait(self) -> frozenset[int]:
        """The ranks that may wait in a group whose source counts launches only."""
        return frozenset(_may_wait(self.snapshot))

    def _waiting(self, vertices: Iterable[Vertex]) -> Counter[Wait]:
        """Return how many of the vertices are in each wait."""
        return Counter(
            wait
            for vertex in vertices
            if isinstance(vertex, int)
            for wait in self._edges.get(vertex, ())
            if isinstance(wait, Wait)
        )


def _root(graph: _Graph, component: list[Vertex], reached: frozenset[Vertex]) -> Hang | None:
    victims, ranks = graph.victims(reached), ranks_of(component)
    if not ranks:
        (wait,) = (vertex for vertex in component if isinstance(vertex, Wait))
        return _terminal(graph.snapshot, wait, victims)
    direct = graph.longest(component, reached, ranks)
    if len(ranks) == 1:
        return _rank(graph, ranks[0], victims, direct)
    if any(isinstance(vertex, Wait) and vertex.reason == "order" for vertex in component):
        return None  # hosts that ran ahead of their devices look the same
    decided = not any(isinstance(each, Wait) and each.reason == "turn" for each in component)
    return Hang("call_order", ranks, victims, decided, direct)


def _rank(graph: _Graph, rank: int, victims: tuple[int, ...], wait: Wait | None) -> Hang | None:
    snapshot = graph.snapshot
    if rank in snapshot.dead:
        return Hang("rank_exited", (rank,), victims, True, wait)
    if rank in snapshot.moving or wait is None:
        return None
    if rank in snapshot.silent:
        return Hang("no_data", (rank,), victims, False, wait)
    if wait.reason == "start":
        return Hang("launched_not_started", (rank,), victims, True, wait)
    return Hang("not_launched", (rank,), victims, rank not in graph.may_wait, wait)


def _terminal(snapshot: Snapshot, wait: Wait, victims: tuple[int, ...]) -> Hang | None:
    if wait.reason == "mismatch":
        different = disagreement(signatures(snapshot, wait))
        assert different is not None
        ranks, decided = different
        named = frozenset(ranks)
        others = tuple(rank for rank in victims if rank not in named)
        return Hang("mismatch", ranks, others, decided, wait)
    if wait.reason == "order":
        # None of them has started it: what their devices do instead, no collective says.
        return Hang("launched_not_started", (), victims, False, wait) if victims else None
    positions = snapshot.members_of(wait.group)
    unfinished = [rank for rank in sorted(positions) if positions[rank].unfinished_requests > 0]
    ranks = tuple(unfinished) if len(unfinished) == 1 else ()
    others = tuple(rank for rank in victims if rank not in ranks)
    return Hang("network_stuck", ranks, others, bool(ranks), wait)


def _may_wait(snapshot: Snapshot) -> Iterator[int]:
    """Yield the ranks that may wait in a group whose source counts launches only.

    They do not where others have launched more.
    """
    for group, positions in snapshot:
        if group.name in snapshot.idle:
            continue
        most = max((position.enqueued for position in positions.values()), default=0)
        for rank, position in positions.items():
            if position.completed is None and position.enqueued == most:
                yield rank
