"""Round trips of TCP to each other host, over connections that carry a lot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.sources.host.connections import Connection

# Acknowledgements of single small messages wait up to 40 ms for company; those of a stream do not.
# This is what TCP may send at once without scaling its window.
LEAST_BYTES = 65_536
# Of more peers, so many to which round trips are longest, and as many to which most is sent.
# Chosen: a rank has two to three in NCCL's rings and trees.
MOST_PEERS_EACH = 8
# How many the shortest round trip is remembered of: those not heard of longest are forgotten.
# Chosen: 64 times the peers that are published.
_MOST_REMEMBERED = 1024

_Pair = tuple[str, str]


class RoundTrip(NamedTuple):
    """Between an address of this node and a peer.

    Parameters
    ----------
    address, peer
        Of this node and of the peer.
    seconds
        The mean, by what connections carried.
    least_seconds
        The shortest ever seen; None where the kernel does not tell it.
    carried_bytes
        What has arrived there since the peer was first seen.
    """

    address: str
    peer: str
    seconds: float
    least_seconds: float | None
    carried_bytes: int


@dataclass(slots=True)
class _Peer:
    """The shortest round trip to a peer, and the bytes that have arrived there."""

    least: float | None = None
    carried: int = 0


class RoundTrips:
    """Remembers what connections had carried, and of each peer what they carried together."""

    def __init__(self) -> None:
        self._acknowledged: dict[int, int] = {}
        self._peers: dict[_Pair, _Peer] = {}

    def update(self, connections: Iterable[Connection], seconds: float) -> list[RoundTrip]:
        """Return the peers to which much was sent since the last update, in order of address.

        Parameters
        ----------
        connections
            All there are.
        seconds
            How long ago the last update was. Of connections that were not there then, all that
            they have carried counts if they sent since.
        """
        before, self._acknowledged = self._acknowledged, {}
        sent: dict[_Pair, list[tuple[int, float]]] = {}
        for each in connections:
            self._acknowledged[each.cookie] = each.acknowledged_bytes
            pair = each.address, each.peer
            earlier = before.get(each.cookie, 0 if each.sent_seconds <= seconds else None)
            new = 0 if earlier is None else each.acknowledged_bytes - earlier
            self._remember(pair, each.least_round_trip_seconds, new)
            if new >= LEAST_BYTES:
                sent.setdefault(pair, []).append((new, each.round_trip_seconds))
        return self._chosen(sent)

    def _remember(self, pair: _Pair, seconds: float | None, new: int) -> None:
        # The last in the table was heard of last.
        peer = self._peers[pair] = self._peers.pop(pair) if pair in self._peers else _Peer()
        if seconds is not None:
            peer.least = seconds if peer.least is None else min(seconds, peer.least)
        peer.carried += new
        if len(self._peers) > _MOST_REMEMBERED:
            del self._peers[next(iter(self._peers))]

    def _chosen(self, sent: dict[_Pair, list[tuple[int, float]]]) -> list[RoundTrip]:
        totals = {pair: sum(new for new, _ in each) for pair, each in sent.items()}
        means = {
            pair: sum(new * seconds for new, seconds in each) / totals[pair]
            for pair, each in sent.items()
        }
        worst = sorted(means, key=lambda pair: (-means[pair], pair))[:MOST_PEERS_EACH]
        busiest = sorted(totals, key=lambda pair: (-totals[pair], pair))[:MOST_PEERS_EACH]
        # Of a flood of peers the first are forgotten before the last are seen.
        known = {pair: self._peers.get(pair, _Peer()) for pair in {*worst, *busiest}}
        return [
            RoundTrip(*pair, means[pair], known[pair].least, known[pair].carried)
            for pair in sorted(known)
        ]
