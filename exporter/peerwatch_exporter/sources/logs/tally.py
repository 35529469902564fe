"""What was seen in the logs since the last report, by job and rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_common.signatures.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from peerwatch_common.signatures.event import Event
    from peerwatch_exporter.sources.logs.owners import Owner

# Of one report: a flood of distinct peers is a flood all the same. Chosen: 16 ranks that each name
# a thousand; a peer is an address or a host's name, and an error's beginning tells it.
_MOST_KEYS = 20_000
_LONGEST_PEER = 64
_LONGEST_ERROR = 200
_NOISE = "X"


class EventKey(NamedTuple):
    """The labels of an event; ``rank`` is empty if no rank is known."""

    job_id: str
    rank: str
    event_class: str
    signature: str


class PeerKey(NamedTuple):
    """The labels of a complaint about a peer: a rank's number, an address or a host name."""

    job_id: str
    rank: str
    peer: str
    signature: str


class FirstError(NamedTuple):
    """The first error of a rank that does not follow from another one."""

    time: float
    event_class: str
    signature: str
    text: str = ""


@dataclass(slots=True)
class Tally:
    """Counts events.

    Parameters
    ----------
    keeps_texts
        Whether the redacted text of first errors is kept.
    """

    keeps_texts: bool = False

    events: dict[EventKey, tuple[int, float]] = field(default_factory=dict)
    peers: dict[PeerKey, int] = field(default_factory=dict)
    firsts: dict[tuple[str, str], FirstError] = field(default_factory=dict)

    def add(self, event: Event, owner: Owner, ranks: RanksHere, time: float) -> None:
        """Count an event of a file, unless it is another node's.

        Parameters
        ----------
        event, owner
            What was read, and whose file it is.
        ranks
            The ranks of this node.
        time
            When it was written (Unix time), as well as that is known.
        """
        rank = ranks.of(event, owner)
        if rank is None and not owner.counts_unnamed:
            return
        if owner.is_shared and rank is not None and not ranks.has(owner.job_id, rank):
            return
        label = "" if rank is None else str(rank)
        key = EventKey(owner.job_id, label, event.signature.event_class.value, event.signature.id)
        count, last = self.events.get(key, (0, 0.0))
        if count or len(self.events) < _MOST_KEYS:
            self.events[key] = count + 1, max(last, time)
        if event.peer_rank is not None or event.peer_address:
            peer = str(event.peer_rank) if event.peer_rank is not None else event.peer_address or ""
            self._add_peer(PeerKey(owner.job_id, label, peer[:_LONGEST_PEER], key.signature))
        is_first = (owner.job_id, label) not in self.firsts
        if is_first and not event.cascade and key.event_class != _NOISE:
            text = redacted(event.text, _LONGEST_ERROR) if self.keeps_texts else ""
            first = FirstError(time, key.event_class, key.signature, text)
            self.firsts[owner.job_id, label] = first

    def _add_peer(self, key: PeerKey) -> None:
        if key in self.peers or len(self.peers) < _MOST_KEYS:
            self.peers[key] = self.peers.get(key, 0) + 1

    def take(self) -> dict[str, list[list[object]]]:
        """Return what JSON can carry of it, and begin anew."""
        taken: dict[str, list[list[object]]] = {
            "events": [[*key, *value] for key, value in self.events.items()],
            "peers": [[*key, count] for key, count in self.peers.items()],
            "firsts": [[*key, *first] for key, first in self.firsts.items()],
        }
        self.events, self.peers, self.firsts = {}, {}, {}
        return taken


class RanksHere:
    """The ranks of this node, to name the writer of a line.

    Parameters
    ----------
    by_local_rank
        Ranks by job and number on the node.
    ranks
        Job and rank of each.
    """

    def __init__(
        self,
        by_local_rank: Mapping[tuple[str, int], int],
        ranks: Collection[tuple[str, int]],
    ) -> None:
        self._by_local_rank = by_local_rank
        self._ranks = ranks

    def has(self, job_id: str, rank: int) -> bool:
        """Return whether a rank runs on this node."""
        return (job_id, rank) in self._ranks

    def of(self, event: Event, owner: Owner) -> int | None:
        """Return the rank that wrote a line; None if nobody knows.

        A file that is one rank's is believed before what a line says: text of other ranks is
        quoted in it.
        """
        if owner.rank is not None:
            return owner.rank
        if event.rank is not None:
            return event.rank
        if event.local_rank is not None:
            return self._by_local_rank.get((owner.job_id, event.local_rank))
        return None
