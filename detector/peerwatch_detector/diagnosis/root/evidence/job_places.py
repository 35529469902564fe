"""Who is who in a job: its nodes, their ranks and addresses, and where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Who is who in a job: its nodes, their ranks, and where they stand.

    Parameters
    ----------
    nodes
        Names of the nodes.
    ranks
        The node of each rank, as far as known.
    places
        By node, its places by level (``rack``, ``leaf``, ``pod``); see docs/topology.md.
    addresses
        The node of each address that errors may name instead of a node or rank.
    """

    nodes: tuple[str, ...]
    ranks: Mapping[int, str] = field(default_factory=dict)
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
