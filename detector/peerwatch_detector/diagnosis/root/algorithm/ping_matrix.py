"""What bad cells in a matrix of pings have in common: a row, a column, a border, a single cell.

A row is one node that sends, a column one that receives. A node is bad if its row or column is bad
as evenly as chance allows, over several partners: a partner that it reaches well speaks against it.
So a healthy node with bad partners is not named, and neither is one whose uplink is bad, as it
reaches its neighbours.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from peerwatch_detector.diagnosis.root.taxonomy.cause import names

What = Literal["node", "place", "path", "all"]
Direction = Literal["", "send", "receive"]
Places = Mapping[str, Mapping[str, str]]

# Fewer pings say nothing about one pair: a tenth of what a default set of pings sends to a peer in
# the ten minutes that are read.
LEAST_SENT = 20
# What a healthy network may lose. Chosen: half of a thousandth; networks of clusters lose far less
# than one.
_HEALTHY_RATIO = 0.0005
# A pair is bad from as many lost pings on, and from this share. Chosen: one or two are chance; half
# of the loss from which on TCP suffers (loss.py).
_LEAST_LOST = 3
_LEAST_RATIO = 0.01
# With one partner, either of the two could be the reason.
_LEAST_PARTNERS = 2
# Of all cells, or of those that cross a border, so many are bad if they are so in common. Chosen: a
# pair in five may be lucky, where what they share loses only a part of the packets.
_MOST = 0.8
# How rare it must be: that a healthy pair loses so many, or that a partner of a bad node is reached
# so well. Chosen: a job with a thousand pairs meets a bad one by chance in one of ten readings.
_CHANCE = 1e-4
_LEVELS = ("rack", "leaf", "pod")


@dataclass(frozen=True, slots=True)
class Cell:
    """Pings from one node to another.

    Parameters
    ----------
    source, destination
        The nodes.
    sent, lost
        How many were sent, and how many of them did not arrive, or took too long.
    """

    source: str
    destination: str
    sent: int
    lost: int

    @property
    def is_bad(self) -> bool:
        """Whether more are lost than a healthy network loses (bound of Chernoff for Poisson)."""
        if self.lost < max(_LEAST_LOST, _LEAST_RATIO * self.sent):
            return False
        usual = _HEALTHY_RATIO * self.sent
        return self.lost * math.log(self.lost / usual) - self.lost + usual > -math.log(_CHANCE)


@dataclass(frozen=True, slots=True)
class Fault:
    """What bad cells have in common.

    Parameters
    ----------
    what
        ``node``: row, column or both of one node; ``place``: all cells that cross a border;
        ``path``: single cells; ``all``: most cells, so settings or the fabric as a whole.
    name
        The node; "leaf l3", or "n1, n2 from the others" where no label says it; both ends of a
        path; empty for ``all``.
    pairs
        How many pairs of nodes are bad.
    direction
        Of a node that only sends or only receives badly, which of both.
    """

    what: What
    name: str
    pairs: int
    direction: Direction = ""


def ping_faults(cells: Iterable[Cell], places: Places) -> tuple[Fault, ...]:
    """Return what bad cells have in common; nothing if none is bad or too few pings were sent.

    Parameters
    ----------
    cells
        Each ordered pair of nodes once at most.
    places
        By node, its places by level (``rack``, ``leaf``, ``pod``), as far as known.
    """
    known = [cell for cell in cells if cell.sent >= LEAST_SENT and cell.source != cell.destination]
    bad = [cell for cell in known if cell.is_bad]
    nodes = {node for cell in known for node in (cell.source, cell.destination)}
    if not bad:
        return ()
    if len(bad) >= _MOST * len(known) and len(nodes) > _LEAST_PARTNERS:
        return (Fault("all", "", _pairs(bad)),)
    found = _nodes(known, nodes)
    # Only a healthy majority shows who is not.
    if len(found) > (len(nodes) - 1) // 2:
        return _places(known, places) or _groups(known) or (Fault("all", "", _pairs(bad)),)
    rest = [c for c in known if c.source not in found and c.destination not in found]
    lossy = Counter(node for pair in _lossy(bad) for node in pair)
    named = tuple(
        Fault("node", node, lossy[node], direction) for node, direction in sorted(found.items())
    )
    return named + (_places(rest, places) or _groups(rest) or _paths(rest))


def _pairs(cells: Iterable[Cell]) -> int:
    return len(_lossy(cells))


def _lossy(bad: Iterable[Cell]) -> set[frozenset[str]]:
    return {frozenset((cell.source, cell.destination)) for cell in bad}


def _nodes(known: Sequence[Cell], nodes: Collection[str]) -> dict[str, Direction]:
    """Return bad nodes, and which of both directions is bad."""
    rows: Mapping[str, list[Cell]] = defaultdict(list)
    columns: Mapping[str, list[Cell]] = defaultdict(list)
    for cell in known:
        rows[cell.source].append(cell)
        columns[cell.destination].append(cell)
    found: dict[str, Direction] = {}
    for node in nodes:
        sends, receives = _is_bad(rows[node]), _is_bad(columns[node])
        if sends or receives:
            found[node] = "" if sends and receives else "send" if sends else "receive"
    # Who is bad only with partners that are bad themselves is explained by these.
    partners: dict[str, set[str]] = defaultdict(set)
    for cell in known:
        if cell.is_bad:
            partners[cell.source].add(cell.destination)
            partners[cell.destination].add(cell.source)
    return {node: found[node] for node in found if not partners[node] <= found.keys()}


def _is_bad(line: Sequence[Cell]) -> bool:
    """Whether a row or column is bad over several partners, and none speaks against it."""
    if sum(cell.is_bad for cell in line) < _LEAST_PARTNERS:
        return False
    # Of more than half of the partners: others may be bad themselves.
    ratio = median_low(cell.lost / cell.sent for cell in line)
    if ratio < _LEAST_RATIO:
        return False
    good = [cell for cell in line if not cell.is_bad]
    together = (sum(cell.sent for cell in good), sum(cell.lost for cell in good))
    return not any(
        _is_better(sent, lost, ratio)
        for sent, lost in (together, *((cell.sent, cell.lost) for cell in line))
    )


def _is_better(sent: int, lost: int, ratio: float) -> bool:
    """Whether fewer were lost than chance allows where the ratio is the true one (Chernoff)."""
    ratio = min(ratio, 0.999)
    if sent == 0 or lost / sent >= ratio:
        return False
    own = lost / sent
    divergence = (1 - own) * math.log((1 - own) / (1 - ratio))
    if own > 0:
        divergence += own * math.log(own / ratio)
    return sent * divergence > -math.log(_CHANCE)


def _places(cells: Sequence[Cell], places: Places) -> tuple[Fault, ...]:
    """Return places whose borders are bad, of the level at which the fewest explain it."""
    bad = [cell for cell in cells if cell.is_bad]
    found = [_places_of(level, cells, len(bad), places) for level in (_LEVELS if bad else ())]
    return min(filter(None, found), key=len, default=())


def _places_of(level: str, cells: Sequence[Cell], bad: int, places: Places) -> tuple[Fault, ...]:
    of = {node: each[level] for node, each in places.items() if each.get(level)}
    groups: dict[frozenset[str], list[Cell]] = defaultdict(list)
    for cell in cells:
        between = frozenset((of.get(cell.source, ""), of.get(cell.destination, "")))
        if len(between) == 2 and "" not in between:
            groups[between].append(cell)
    common = {between: each for between, each in groups.items() if _is_border(each, of)}
    explained = sum(cell.is_bad for each in common.values() for cell in each)
    if not common or explained < _MOST * bad:
        return ()
    return tuple(_named_places(level, common, groups))


def _is_border(cells: Sequence[Cell], of: Mapping[str, str]) -> bool:
    """Whether cells between two places are bad, of several nodes on either side."""
    sides: dict[str, set[str]] = defaultdict(set)
    bad = [cell for cell in cells if cell.is_bad]
    for cell in bad:
        sides[of[cell.source]].add(cell.source)
        sides[of[cell.destination]].add(cell.destination)
    several = sides and min(map(len, sides.values())) >= _LEAST_PARTNERS
    return bool(several) and len(bad) >= _MOST * len(cells)


def _named_places(
    level: str, common: Mapping[frozenset[str], list[Cell]], groups: Collection[frozenset[str]]
) -> Iterable[Fault]:
    """Yield places all of whose borders are bad; else the two on both sides of each."""
    left = dict(common)
    for place in sorted({place for between in common for place in between}):
        borders = [between for between in groups if place in between]
        if len(borders) > 1 and all(between in left for between in borders):
            crossing = [cell for between in borders for cell in left.pop(between)]
            yield Fault("place", f"{level} {place}", _pairs(c for c in crossing if c.is_bad))
    for between, cells in left.items():
        name = f"{level} " + " - ".join(sorted(between))
        yield Fault("place", name, _pairs(cell for cell in cells if cell.is_bad))


def _groups(cells: Sequence[Cell]) -> tuple[Fault, ...]:
    """Return groups of nodes that reach one another and not the others, whatever they share."""
    bad = [cell for cell in cells if cell.is_bad]
    of: dict[str, set[str]] = {
        node: {node} for cell in cells for node in (cell.source, cell.destination)
    }
    lossy = _lossy(bad)
    for cell in cells:
        if frozenset((cell.source, cell.destination)) not in lossy:
            small, large = sorted((of[cell.source], of[cell.destination]), key=len)
            if small is not large:
                large |= small
                of |= dict.fromkeys(small, large)
    groups = sorted(
        {id(each): each for each in of.values()}.values(), key=lambda g: (len(g), sorted(g))
    )
    between = all(of[cell.source] is not of[cell.destination] for cell in bad)
    if len(groups) < 2 or len(groups[0]) < _LEAST_PARTNERS or not between or not bad:
        return ()
    crossing = Counter(id(of[node]) for pair in lossy for node in pair)
    return tuple(
        Fault("place", f"{names(sorted(group))} from the others", crossing[id(group)])
        for group in groups[:-1]
    )


def _paths(cells: Sequence[Cell]) -> tuple[Fault, ...]:
    """Return single pairs; of one that is bad in one direction, from whom to whom."""
    bad = {(cell.source, cell.destination) for cell in cells if cell.is_bad}
    found = []
    for source, destination in sorted(bad):
        if (destination, source) not in bad:
            found.append(Fault("path", f"{source} to {destination}", 1))
        elif source < destination:
            found.append(Fault("path", f"{source} - {destination}", 1))
    return tuple(found)
