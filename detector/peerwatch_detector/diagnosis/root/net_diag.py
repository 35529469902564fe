"""NetDiag of Aegis' Algorithm 1: the node, place or path that lost pings have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.diagnosis.root.cause import node_of
from peerwatch_detector.diagnosis.root.episode import Episode
from peerwatch_detector.diagnosis.root.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.rule import Observation

# Of the pairs that lose packets, a node or place is in this many if it is the reason.
_MOST = 0.8


@dataclass(frozen=True, slots=True)
class Unreachable:
    """What pairs of nodes that lose packets have in common.

    Parameters
    ----------
    what
        ``node``: the row and column of one node; ``place``: all pairs cross the border of one;
        ``path``: single pairs.
    name
        The node, "leaf l3", or both ends of the path.
    pairs
        How many pairs lose packets.
    """

    what: Literal["node", "place", "path"]
    name: str
    pairs: int


def unreachable(episode: Episode, job: JobPlaces) -> Unreachable | None:
    """Return what the pairs that lose packets have in common; None if none does."""
    pairs = lossy_pairs(episode.observations, job)
    if not pairs:
        return None
    nodes = {node for pair in pairs for node in pair}
    touched = {node: sum(node in pair for pair in pairs) for node in nodes}
    best, *rest = sorted(touched, key=lambda node: (-touched[node], node))
    least = _MOST * len(pairs)
    if touched[best] >= least and len(pairs) > 1 and touched[rest[0]] < least:
        return Unreachable("node", best, len(pairs))
    for level in ("rack", "leaf", "pod"):
        of = {node: job.places.get(node, {}).get(level, "") for node in nodes}
        for place in sorted(set(of.values()) - {""}):
            crossing = sum((of[a] == place) != (of[b] == place) for a, b in pairs)
            if crossing >= least and sum(name == place for name in of.values()) > 1:
                return Unreachable("place", f"{level} {place}", len(pairs))
    return Unreachable("path", " - ".join(pairs[0]), len(pairs))


def lossy_pairs(observations: Sequence[Observation], job: JobPlaces) -> list[tuple[str, str]]:
    """Return the pairs of nodes that lose packets, each once, in order of name."""
    found = {
        (min(node, peer), max(node, peer))
        for each in observations
        if each.evidence.kind == "reach" and each.evidence.name == "lost"
        if (node := node_of(each, job)) and (peer := each.evidence.peer_node)
    }
    return sorted(pair for pair in found if pair[0] != pair[1])
