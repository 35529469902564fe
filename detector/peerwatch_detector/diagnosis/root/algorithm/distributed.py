"""DistError and RootDiag of Aegis' Algorithm 1: who complains about whom, and whom all touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peerwatch_detector.diagnosis.root.algorithm.episode import Episode
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import by_node, node_of
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation

# Connections that break with the root itself do so at once; those of its victims when they end.
# Chosen: clocks and logs differ by 2 s, and ranks that lost a peer take up to half a minute to end.
_FIRST_SECONDS = 10.0
# One complaint in ten may have a reason of its own; a victim in a ring of ranks is touched by half
# of them, and one complaint in ten more.
_ALMOST_ALL, _OTHERS = 0.9, 0.6
# The job's store lives on its first node: complaints about it say that the job ends.
_ABOUT_THE_STORE = ("store_", "rendezvous_")


@dataclass(frozen=True, slots=True)
class Complaint:
    """The first complaint of one node about another.

    Parameters
    ----------
    source, destination
        The node that complains, and about whom.
    time
        When, in the evidence's seconds.
    """

    source: str
    destination: str
    time: float


@dataclass(frozen=True, slots=True)
class Touched:
    """The node that all complaints touch.

    Parameters
    ----------
    node
        Its name.
    others
        With how many nodes.
    share
        Of all complaints, those that touch it, 0 to 1.
    first
        Whether they are all of the first ones, but not of all.
    """

    node: str
    others: int
    share: float
    first: bool


def distributed_errors(episode: Episode, job: JobPlaces) -> dict[str, list[Observation]]:
    """Return the errors that any rank may show, by the node that shows them (``L_DE``)."""
    return by_node(episode.of("waiting", "broken"), job)


def complaints(episode: Episode, job: JobPlaces) -> tuple[Complaint, ...]:
    """Return the first complaint of each node about each other one, in order of time."""
    found: dict[tuple[str, str], Complaint] = {}
    for each in episode.of("waiting", "broken"):
        if each.evidence.name.startswith(_ABOUT_THE_STORE):
            continue
        source, destination = node_of(each, job), peer_of(each.evidence, job)
        if source and destination:
            found.setdefault((source, destination), Complaint(source, destination, each.time))
    return tuple(found.values())


def peer_of(evidence: Evidence, job: JobPlaces) -> str:
    """Return the node that a line complains about; empty if it does not say, or nobody knows."""
    if evidence.peer_node:
        return evidence.peer_node
    if evidence.peer_rank is not None and evidence.peer_rank in job.ranks:
        return job.ranks[evidence.peer_rank]
    address = evidence.peer_address
    # Most lines name nobody, and a large job has as many of them as ranks.
    if not address:
        return ""
    if address in job.nodes:
        return address
    for known in (address, address.partition("<")[0], address.rpartition(":")[0]):
        if known in job.addresses:
            return job.addresses[known]
    return ""


def touched_by_all(found: Sequence[Complaint]) -> Touched | None:
    """Return the node that all complaints touch, or all of the first ones; None if there is none.

    A single pair of nodes does not say which of the two it is.
    """
    if not found:
        return None
    begun = min(each.time for each in found)
    first = [each for each in found if each.time <= begun + _FIRST_SECONDS]
    for among, is_first in ((found, False), (first, True)):
        shares = _shares(among)
        best, *rest = sorted(shares, key=lambda node: -shares[node])
        others = {n for each in among for n in _ends(each) if best in _ends(each)} - {best}
        alone = shares[best] >= _ALMOST_ALL and (not rest or shares[rest[0]] <= _OTHERS)
        if alone and len(others) > 1:
            share = _shares(found)[best]
            return Touched(best, len(others), share, is_first and share < _ALMOST_ALL)
    return None


def _shares(found: Iterable[Complaint]) -> dict[str, float]:
    """Return by node the share of complaints that touch it."""
    listed = list(found)
    counts: dict[str, int] = {}
    for each in listed:
        for node in _ends(each):
            counts[node] = counts.get(node, 0) + 1
    return {node: count / len(listed) for node, count in counts.items()}


def _ends(each: Complaint) -> set[str]:
    return {each.source, each.destination}
