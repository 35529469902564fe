"""Sources that are not there: a metric nobody scrapes, logs without permission, no topology."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from peerwatch_demo.incidents.hosts import Hosts
from peerwatch_demo.incidents.observation import Observation
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, Kind
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces

# What one source brings. That a node is absent comes with being scraped at all, and stays.
_SOURCES: dict[str, frozenset[Kind]] = {
    "kernel log": frozenset({"xid", "sxid", "kernel"}),
    "logs": frozenset({"log"}),
    "NIC counters": frozenset({"nic", "traffic"}),
    "processes": frozenset({"process", "heartbeat"}),
    "steps": frozenset({"step"}),
    "collectives": frozenset({"collective"}),
    "findings": frozenset({"finding"}),
    "checks": frozenset({"check"}),
    "configuration": frozenset({"config"}),
    "pings": frozenset({"reach"}),
    "sensors": frozenset({"gpu", "host"}),
    "changes": frozenset({"boot", "change", "job"}),
}
_TOPOLOGY, _ADDRESSES = "topology", "addresses"
# How an error names a peer: sockets by address, others by rank; some installations resolve both.
PeerStyle = Literal["address", "rank", "node"]

# Shares of the incidents, and the most samples lost; editorial, taken wide.
_NONE_MISSING, _TWO_MISSING = 0.5, 0.15
_SOME_NODES_ONLY = 0.5
_SAMPLES_LOST, _MOST_LOST = 0.3, 0.05


@dataclass(frozen=True, slots=True)
class Losses:
    """What of an incident does not reach the diagnosis.

    Parameters
    ----------
    kinds
        Kinds that come from no node.
    unobserved_nodes, unobserved_kinds
        Nodes from which these kinds do not come.
    topology, addresses
        Whether these are unknown.
    peers
        How errors name peers.
    lost
        Share of the single observations that are lost.
    sources
        What is missing, for a person.
    """

    kinds: frozenset[Kind] = frozenset()
    unobserved_nodes: frozenset[str] = frozenset()
    unobserved_kinds: frozenset[Kind] = frozenset()
    topology: bool = False
    addresses: bool = False
    peers: PeerStyle = "node"
    lost: float = 0.0
    sources: tuple[str, ...] = ()

    def leaves(self, evidence: Evidence) -> bool:
        """Whether an observation reaches the diagnosis."""
        if evidence.kind in self.kinds:
            return False
        if evidence.node in self.unobserved_nodes and evidence.kind in self.unobserved_kinds:
            return False
        # By its time, which was drawn, so that nothing more need be.
        return evidence.kind == "absent" or evidence.time * 1000 % 1000 >= self.lost * 1000

    def leaves_peer(self, seen: Observation) -> bool:
        """Whether it can be known whom it complains about, if it does."""
        named = bool(seen.evidence.peer_address)
        return not (named and self.peers == "address" and self.addresses)

    def of_evidence(self, evidence: Evidence) -> Evidence:
        """Return an observation with its peer as errors name it."""
        if not evidence.peer_address:
            return evidence
        if self.peers == "address":
            return replace(evidence, peer_node="", peer_rank=None)
        if self.peers == "rank":
            return replace(evidence, peer_node="", peer_address="")
        return replace(evidence, peer_rank=None)

    def of_places(self, places: JobPlaces) -> JobPlaces:
        """Return who is who, as far as it is known."""
        return replace(
            places,
            places={} if self.topology else places.places,
            addresses={} if self.addresses else places.addresses,
        )


def draw_losses(random: Random, hosts: Hosts) -> Losses:
    """Draw what is missing: nothing in half of the incidents, else one source, seldom two."""
    peers: PeerStyle = random.choice(get_args(PeerStyle))
    lost = random.uniform(0, _MOST_LOST) if random.random() < _SAMPLES_LOST else 0.0
    if random.random() < _NONE_MISSING:
        return Losses(peers=peers, lost=lost)
    names = [*_SOURCES, _TOPOLOGY, _ADDRESSES]
    missing = random.sample(names, 2 if random.random() < _TWO_MISSING else 1)
    kinds = frozenset(kind for name in missing for kind in _SOURCES.get(name, ()))
    some_only = random.random() < _SOME_NODES_ONLY and bool(kinds)
    unobserved = random.sample(hosts.names, max(1, len(hosts.names) // 3)) if some_only else []
    where = f" of {len(unobserved)} nodes" if some_only else ""
    return Losses(
        kinds=frozenset() if some_only else kinds,
        unobserved_nodes=frozenset(unobserved),
        unobserved_kinds=kinds if some_only else frozenset(),
        topology=_TOPOLOGY in missing,
        addresses=_ADDRESSES in missing,
        peers=peers,
        lost=lost,
        sources=tuple(name + where if name in _SOURCES else name for name in missing),
    )
