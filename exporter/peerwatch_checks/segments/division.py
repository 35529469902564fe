"""Cuts nodes into parts whose traffic shares no link: by pod, by leaf switch, else in halves.

The parts have the names that the detector's diagnosis gives to those it proposes to test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# From far to near: what is below different places of a level meets only above them.
LEVELS = ("pod", "leaf", "rack")


@dataclass(frozen=True, slots=True)
class Segment:
    """Nodes that train together.

    Parameters
    ----------
    name
        Such as ``all nodes``, ``pod p1``, ``leaf l3``, ``half 2 of leaf l3``.
    nodes
        Their names.
    """

    name: str
    nodes: tuple[str, ...]


def divided(segment: Segment, places: Mapping[str, Mapping[str, str]]) -> tuple[Segment, ...]:
    """Return the parts of a segment: its pods, else its leaves, else its racks, else two halves.

    Parameters
    ----------
    segment
        Two nodes at least; of one it is itself.
    places
        Of each node its places by level. A level counts where each node has one, and not all the
        same.
    """
    for level in LEVELS:
        groups: dict[str, list[str]] = {}
        for node in segment.nodes:
            groups.setdefault(places.get(node, {}).get(level, ""), []).append(node)
        if len(groups) > 1 and "" not in groups:
            return tuple(Segment(f"{level} {name}", tuple(groups[name])) for name in sorted(groups))
    middle = (len(segment.nodes) + 1) // 2
    halves = (segment.nodes[:middle], segment.nodes[middle:])
    return tuple(
        Segment(f"half {place} of {segment.name}", half)
        for place, half in enumerate(halves, 1)
        if half
    )
