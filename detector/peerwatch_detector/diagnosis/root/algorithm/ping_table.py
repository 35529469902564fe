"""Counters of pings as matrices of one-way paths: one for each size, and one for slow answers.

An answer is always small and says how many pings arrived. So what is lost on the way there is of
the size that was sent, and what is lost on the way back is small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

from peerwatch_detector.diagnosis.root.algorithm.ping_matrix import LEAST_SENT, Cell

Size = Literal["small", "large", "full"]
SIZES: tuple[Size, ...] = get_args(Size)
# Slow: so many times the median of all pairs, and this much more than it. Chosen: pairs of one site
# differ by some hops of microseconds each; half a millisecond more is a queue.
_TIMES_THE_MEDIAN = 3.0
_LEAST_SECONDS_MORE = 0.0005


@dataclass(frozen=True, slots=True)
class PairCount:
    """Pings of one node to another, of one size, in some minutes.

    Parameters
    ----------
    source, destination
        The nodes.
    protocol, size
        ``udp``, ``tcp`` or ``rdma``; ``small``, ``large`` or ``full``.
    sent
        Pings that were answered or lost.
    to_peer, from_peer, unknown
        Those lost, by direction.
    seconds
        Mean round trip of those answered; None if none was.
    """

    source: str
    destination: str
    protocol: str
    size: str
    sent: int
    to_peer: int = 0
    from_peer: int = 0
    unknown: int = 0
    seconds: float | None = None

    @property
    def lost(self) -> int:
        """All that were lost."""
        return self.to_peer + self.from_peer + self.unknown


@dataclass(frozen=True, slots=True)
class PingTable:
    """What is known of pings between nodes.

    Parameters
    ----------
    cells
        One-way paths by size.
    slow
        Pairs of which the answers took long, as cells of which all are lost, and all other pairs.
    rdma
        Pings over RDMA, of all sizes; a connection that is lost has no direction.
    """

    cells: Mapping[Size, tuple[Cell, ...]]
    slow: tuple[Cell, ...] = ()
    rdma: tuple[Cell, ...] = ()

    @property
    def pairs(self) -> int:
        """Pairs of nodes between which pings were sent."""
        every = (cell for cells in (*self.cells.values(), self.rdma) for cell in cells)
        return len({frozenset((cell.source, cell.destination)) for cell in every})

    @property
    def has_enough(self) -> bool:
        """Whether any pair was pinged often enough to say something of it."""
        every = (*self.cells.values(), self.rdma)
        return any(cell.sent >= LEAST_SENT for cells in every for cell in cells)


def ping_table(counts: Iterable[PairCount]) -> PingTable:
    """Return the one-way paths of counted pings.

    Parameters
    ----------
    counts
        Each pair, protocol and size once; TCP counts where there is nothing by UDP, as it does not
        tell the direction.
    """
    known = [each for each in counts if each.sent > 0 and each.source != each.destination]
    every = [each for each in known if each.protocol != "rdma"]
    by_udp = {(each.source, each.destination) for each in every if each.protocol == "udp"}
    used = [e for e in every if e.protocol == "udp" or (e.source, e.destination) not in by_udp]
    small = {(e.source, e.destination): e for e in used if e.size == "small"}
    paths: dict[Size, dict[tuple[str, str], list[int]]] = {
        size: defaultdict(lambda: [0, 0]) for size in SIZES
    }
    for each in used:
        size = next((name for name in SIZES if name == each.size), None)
        if size is not None:
            _add(paths, each, size, small.get((each.source, each.destination)))
    cells = {
        # Counters of one scrape may be extrapolated differently.
        size: tuple(
            Cell(*pair, sent, min(lost, sent)) for pair, (sent, lost) in sorted(found.items())
        )
        for size, found in paths.items()
    }
    return PingTable(cells, _slow(used), _both_ways(e for e in known if e.protocol == "rdma"))


def _both_ways(counts: Iterable[PairCount]) -> tuple[Cell, ...]:
    """Return what is lost between two nodes as cells of both directions."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each in counts:
        for pair in ((each.source, each.destination), (each.destination, each.source)):
            found[pair][0] += each.sent
            found[pair][1] += min(each.lost, each.sent)
    return tuple(Cell(*pair, sent, lost) for pair, (sent, lost) in sorted(found.items()))


def _add(
    paths: Mapping[Size, dict[tuple[str, str], list[int]]],
    each: PairCount,
    size: Size,
    small: PairCount | None,
) -> None:
    """Add what one pair says about the path there, and about the path back."""
    there, back, unknown = each.to_peer, each.from_peer, each.unknown
    if unknown and size != "small" and small is not None and _is_clean(small):
        # Small ones come there and back, and answers are small.
        there, unknown = there + unknown, 0
    forth = paths[size][each.source, each.destination]
    forth[0] += each.sent
    forth[1] += there + unknown
    if size == "small":
        answers = paths["small"][each.destination, each.source]
        answers[0] += each.sent - there
        answers[1] += back + unknown


def _is_clean(small: PairCount) -> bool:
    return not Cell(small.source, small.destination, small.sent, small.lost).is_bad


def _slow(counts: Iterable[PairCount]) -> tuple[Cell, ...]:
    """Return all pairs of which round trips are known; those that take long have lost all."""
    trips: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in counts:
        if each.seconds is not None and each.sent - each.lost >= LEAST_SENT:
            trips[each.source, each.destination].append(each.seconds)
    means = {pair: sum(found) / len(found) for pair, found in trips.items()}
    if not means:
        return ()
    usual = median(means.values())
    limit = max(_TIMES_THE_MEDIAN * usual, usual + _LEAST_SECONDS_MORE)
    cells: dict[tuple[str, str], int] = {}
    for (source, destination), mean in sorted(means.items()):
        lost = LEAST_SENT if mean > limit else 0
        # A round trip has no direction.
        for pair in ((source, destination), (destination, source)):
            cells[pair] = max(lost, cells.get(pair, 0))
    return tuple(Cell(*pair, LEAST_SENT, lost) for pair, lost in cells.items())
