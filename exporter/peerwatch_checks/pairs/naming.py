"""Whom low bandwidth between pairs of nodes names: a node, a link, an uplink, or the fabric.

The level that is healthy is the median over nodes of the best each has reached, not the median of
all pairs: where half of the pairs are low, as behind a bad uplink, that one would be low itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from statistics import median
from typing import Literal

from peerwatch_checks.pairs.schedule import Pair, Places, pair_of

# How far below the healthy level a pair is low: pair tests of healthy nodes differ by up to a
# tenth (SuperBench: 5 % by default, 10 % when quick).
TOLERANCE = 0.15
# One bad partner explains one low pair; two distinct partners that are low point at the node.
_PARTNERS = 2

Kind = Literal["node", "link", "uplink", "fabric", "undecided"]
Direction = Literal["", "sending", "receiving"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """What pairs with low bandwidth have in common.

    Parameters
    ----------
    kind
        ``node``: all pairs of a node; ``link``: one pair whose nodes do well with others;
        ``uplink``: all pairs that cross the border of a leaf switch; ``fabric``: everything, a
        switch above all or a setting; ``undecided``: a pair whose nodes met nobody else.
    names
        The node; both nodes of the link or of the undecided pair; "leaf l1", or both, or "pod p2";
        all nodes for ``fabric``.
    ratio
        The best that was reached there over the healthy level (over the floor for ``fabric`` and
        for two nodes); 0 where nothing came through.
    direction
        Of a node: low in what it sends, in what it receives, or both ("").
    """

    kind: Kind
    names: tuple[str, ...]
    ratio: float
    direction: Direction = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a set of pairs.

    Parameters
    ----------
    level
        The bandwidth of a healthy pair here; NaN without a pair.
    suspects
        Nodes first, then uplinks, links, and what is undecided; empty where nothing is low.
    enough
        Whether there was something to compare with: a third node, or a floor.
    """

    level: float
    suspects: tuple[Suspect, ...]
    enough: bool = True


@dataclass(frozen=True, slots=True)
class _Low:
    """Pairs with their values, and which of them are low."""

    bandwidth: Mapping[Pair, float]
    level: float
    cut: float

    def is_low(self, pair: Pair) -> bool:
        # Not a number is no bandwidth.
        return not self.bandwidth[pair] >= self.cut

    def ratio(self, value: float) -> float:
        return value / self.level if self.level > 0 else 0.0


def name_suspects(
    bandwidth: Mapping[Pair, float],
    places: Places | None = None,
    *,
    floor: float | None = None,
    tolerance: float = TOLERANCE,
) -> Verdict:
    """Name what is bad from the bandwidth of pairs.

    Parameters
    ----------
    bandwidth
        By sender and receiver, in any one unit; 0 for a pair whose test failed. A test that
        measures both directions together gives the pair once, in either order.
    places
        Of each node its ``leaf`` and ``pod``; without them no uplink is told from links.
    floor
        What such nodes must reach, in the same unit; None if not known.
    tolerance
        A pair is low below (1 - tolerance) of the healthy level.

    Notes
    -----
    A node is bad if all its pairs are low and it met at least two partners. With d + 1 distinct
    partners for each node, up to d bad ones are named exactly while most nodes are healthy
    (``schedule``).
    """
    best = _best(bandwidth)
    if not best:
        return Verdict(math.nan, (), enough=False)
    level = median(best.values())
    few = len(best) <= _PARTNERS
    if floor is not None and level < floor:
        kind: Kind = "undecided" if few else "fabric"
        suspect = Suspect(kind, tuple(sorted(best)), max(best.values()) / floor)
        return Verdict(level, (suspect,))
    if level <= 0:
        return Verdict(level, (Suspect("fabric", tuple(sorted(best)), 0.0),), enough=not few)
    pairs = _Low(bandwidth, level, (1 - tolerance) * level)
    nodes = _bad_nodes(pairs, best)
    named = {name for suspect in nodes for name in suspect.names}
    rest = {pair for pair in bandwidth if pairs.is_low(pair) and not named & set(pair)}
    uplinks = _uplinks(pairs, {p for p in bandwidth if not named & set(p)}, rest, places or {})
    links = _links(pairs, rest, best)
    return Verdict(level, (*nodes, *uplinks, *links), enough=not few or floor is not None)


def _best(bandwidth: Mapping[Pair, float]) -> dict[str, float]:
    best: dict[str, float] = {}
    for pair, value in bandwidth.items():
        for node in pair:
            best[node] = max(best.get(node, 0.0), value if value > 0 else 0.0)
    return best


def _bad_nodes(pairs: _Low, best: Mapping[str, float]) -> list[Suspect]:
    """Return nodes that are low with all partners, in both directions or in one."""
    sent: dict[str, dict[str, float]] = {node: {} for node in best}
    received: dict[str, dict[str, float]] = {node: {} for node in best}
    for (a, b), value in pairs.bandwidth.items():
        sent[a][b] = received[b][a] = value
    found = []
    for node in sorted(best):
        if best[node] < pairs.cut:
            if len(sent[node].keys() | received[node].keys()) >= _PARTNERS:
                found.append(Suspect("node", (node,), pairs.ratio(best[node])))
            continue
        # One direction says something only where the other was measured by itself.
        both = sent[node].keys() & received[node].keys()
        if len(both) < _PARTNERS:
            continue
        values: list[tuple[Direction, float]] = [
            ("sending", max(sent[node][peer] for peer in both)),
            ("receiving", max(received[node][peer] for peer in both)),
        ]
        found += [
            Suspect("node", (node,), pairs.ratio(max(value, 0.0)), direction)
            for direction, value in values
            if not value >= pairs.cut
        ]
    return found


def _uplinks(pairs: _Low, known: Set[Pair], low: set[Pair], places: Places) -> list[Suspect]:
    """Name the places whose every crossing pair is low, and take their pairs out of ``low``.

    A place of its own goes before two places, and a leaf before its pod, which it may be alone in.
    """
    found: list[Suspect] = []
    for size in (1, 2):
        for level in ("leaf", "pod"):
            of = {node: place[level] for node, place in places.items() if place.get(level)}
            crossing = {
                pair
                for pair in known
                if of.get(pair[0]) and of.get(pair[1]) and of[pair[0]] != of[pair[1]]
            }
            names = sorted({of[node] for pair in crossing for node in pair})
            sides = {tuple(sorted(of[node] for node in pair)) for pair in crossing & low}
            if size == 1:
                sides = {(name,) for side in sides for name in side}
            groups = [
                (those, border)
                for those in sorted(sides)
                if (border := _border(crossing, of, those)) <= low
                if all(_inside(border, of, place) >= _PARTNERS for place in those)
            ]
            if size == 1 and len(groups) == len(names):
                groups = [(tuple(names), crossing)] if names else []
            for those, border in groups:
                ratio = pairs.ratio(max(pairs.bandwidth[pair] for pair in border))
                found.append(Suspect("uplink", tuple(f"{level} {name}" for name in those), ratio))
                low -= border
    return found


def _border(crossing: Set[Pair], of: Mapping[str, str], places: tuple[str, ...]) -> set[Pair]:
    """Return the pairs that cross the border of one place, or those between two."""
    if len(places) == 1:
        return {pair for pair in crossing if places[0] in (of[pair[0]], of[pair[1]])}
    return {pair for pair in crossing if {of[pair[0]], of[pair[1]]} == set(places)}


def _inside(pairs: Set[Pair], of: Mapping[str, str], place: str) -> int:
    return len({node for pair in pairs for node in pair if of[node] == place})


def _links(pairs: _Low, low: Set[Pair], best: Mapping[str, float]) -> list[Suspect]:
    """Return the single pairs that are left: links between good nodes, else undecided."""
    values: dict[Pair, float] = {}
    for pair in low:
        key = pair_of(*pair)
        values[key] = min(values.get(key, math.inf), max(pairs.bandwidth[pair], 0.0))
    links: list[Suspect] = []
    undecided: list[Suspect] = []
    for pair, value in sorted(values.items()):
        good = all(best[node] >= pairs.cut for node in pair)
        suspect = Suspect("link" if good else "undecided", pair, pairs.ratio(value))
        (links if good else undecided).append(suspect)
    return links + undecided
