"""NetDiag of Aegis' Algorithm 1: the node, place or path that lost pings have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from peerwatch_detector.diagnosis.root.algorithm.episode import Episode
from peerwatch_detector.diagnosis.root.algorithm.ping_matrix import Direction, What, ping_faults
from peerwatch_detector.diagnosis.root.algorithm.ping_table import SIZES, PingTable
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import node_of
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation

# Of the pairs that lose packets, a node or place is in this many if it is the reason: four of five,
# as in ping_matrix.py.
_MOST = 0.8
PingSymptom = Literal["", "large", "full", "slow", "rdma"]
_SYMPTOMS: dict[PingSymptom, str] = {
    "": "packets",
    "large": "large packets, and no small ones",
    "full": "packets of full size, and no smaller ones",
    "slow": "late",
    "rdma": "pings over RDMA, and no others",
}


@dataclass(frozen=True, slots=True)
class Unreachable:
    """What pairs of nodes that lose packets have in common.

    Parameters
    ----------
    what
        ``node``: the row and column of one node; ``place``: all pairs cross the border of one;
        ``path``: single pairs; ``all``: most pairs, so settings or the whole fabric.
    name
        The node, "leaf l3", or both ends of the path; empty for ``all``.
    pairs
        How many pairs lose packets.
    symptom
        Which packets are lost: empty for those of any size, ``large`` and ``full`` if small ones
        are not, ``slow`` if answers only come late, ``rdma`` if only pings over RDMA are lost.
    direction
        ``send`` or ``receive`` of a node that only loses what it sends or is sent.
    """

    what: What
    name: str
    pairs: int
    symptom: PingSymptom = ""
    direction: Direction = ""

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        verb = "answer" if self.symptom == "slow" else "lose"
        pairs = f"1 pair {verb}s" if self.pairs == 1 else f"{self.pairs} pairs {verb}"
        who = "most, so settings or the fabric as a whole" if self.what == "all" else ""
        where = f" ({self.direction} side)" if self.direction else ""
        return f"{pairs} {_SYMPTOMS[self.symptom]}: {who or f'{self.what} {self.name}'}{where}"


def net_diag(episode: Episode, job: JobPlaces, pings: PingTable) -> tuple[Unreachable, ...]:
    """Return what pairs that lose packets have in common: from counted pings, else from events.

    Parameters
    ----------
    episode
        Observations; those of lost pings count where no pings were counted.
    job
        Nodes and places.
    pings
        Counted pings; empty if there are none.
    """
    if pings.has_enough:
        return tuple(_of_pings(pings, job))
    found = unreachable(episode, job)
    return () if found is None else (found,)


def _of_pings(pings: PingTable, job: JobPlaces) -> Iterator[Unreachable]:
    """Yield what is found in any size, of each node or place the smallest size that shows it."""
    known: set[tuple[str, str]] = set()
    nodes: set[str] = set()
    tables = (*(pings.cells[s] for s in SIZES), pings.slow, pings.rdma)
    symptoms: tuple[PingSymptom, ...] = ("", "large", "full", "slow", "rdma")
    for symptom, cells in zip(symptoms, tables, strict=True):
        # What is lost around a node that is bad already says nothing more.
        rest = [cell for cell in cells if not nodes & {cell.source, cell.destination}]
        for fault in ping_faults(rest, job.places):
            if fault.what == "node":
                nodes.add(fault.name)
            if (fault.what, fault.name) in known or ("all", "") in known:
                continue
            known.add((fault.what, fault.name))
            yield Unreachable(fault.what, fault.name, fault.pairs, symptom, fault.direction)


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
