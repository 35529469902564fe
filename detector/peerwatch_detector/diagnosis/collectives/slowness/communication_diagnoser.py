"""Says of a job that gets on which node's network its collectives wait for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.collectives.members import format_ranks
from peerwatch_detector.diagnosis.collectives.slowness import transfers
from peerwatch_detector.diagnosis.collectives.slowness.loss import LOSS_QUERIES, Losses
from peerwatch_detector.diagnosis.collectives.slowness.queues import QUEUE_QUERIES, Queues
from peerwatch_detector.diagnosis.collectives.slowness.requests import REQUEST_QUERIES, Requests
from peerwatch_detector.diagnosis.collectives.slowness.round_trips import (
    ROUND_TRIP_QUERIES,
    SlowLinks,
)
from peerwatch_detector.diagnosis.collectives.slowness.slow_groups import common_nodes
from peerwatch_detector.diagnosis.collectives.slowness.transfers import Comparison, Slow
from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.every import Every
from peerwatch_detector.diagnosis.verdict import Confidence, Verdict

# For this share of its time a group waits for the slow transfer: without it the job is 1.2 times as
# fast, the limit of Aegis and of Greyhound.
LEAST_SHARE = 1 - 1 / 1.2
# In so many windows in a row, the fewest: one may hold a pause of the fabric, such as a reroute.
_LEAST_WINDOWS = 2
_RANKS = "max by (node, rank, world_size) (rank_info{ {{ job }} })"


@dataclass(frozen=True, slots=True)
class _Suspect:
    """Whom slow groups have in common: a node and perhaps a rank, or nobody."""

    node: str
    rank: int | None
    slow: tuple[Slow, ...]


class CommunicationDiagnoser:
    """Names the node that all slow groups have in common, or whose packets are lost or late.

    Where durations are known (NCCL), the own transfer times of groups of one kind are compared. A
    back end over TCP measures none: there a node that sends a large share of its segments again,
    and others hardly any, is the one that the collectives wait for; so is one with which round
    trips take long, and between others not. A node that cannot get rid of what it sends, and loses
    little, is undecided: its receiver may be at fault. Where work requests
    are counted, the rank whose requests complete far later than its peers' has a slow network.
    """

    name: ClassVar[str] = "communication"
    queries: ClassVar[Mapping[str, str]] = {
        **transfers.QUERIES,
        **LOSS_QUERIES,
        **QUEUE_QUERIES,
        **ROUND_TRIP_QUERIES,
        **REQUEST_QUERIES,
        "ranks": _RANKS,
    }

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._losses = Losses()
        self._queues = Queues()
        self._links = SlowLinks()
        self._requests = Requests(_LEAST_WINDOWS * transfers.WINDOW_SECONDS)
        self._window = Every(transfers.WINDOW_SECONDS)
        self._windows = 0
        self._since = 0.0
        self._suspect: _Suspect | None = None

    def diagnose(self, samples: Samples, now: float) -> Sequence[Verdict]:
        """Return what stands now; see ``Diagnoser``."""
        nodes = {rank: labels.get("node", "") for rank, labels, _ in by_rank(samples["ranks"])}
        lossy = self._losses.update(samples, now)
        if self._window.is_due(now):
            found = transfers.compare(transfers.read_transfers(samples, nodes), LEAST_SHARE)
            self._evaluate(suspect(found, nodes), now)
        verdicts = []
        if lossy is not None and len(set(nodes.values())) > 1:
            rank = _only_rank(lossy.node, nodes)
            verdicts.append(
                self._verdict(lossy.node, rank, "likely", lossy.text(rank), nodes, lossy.since)
            )
        late = self._requests.update(samples, now)
        if late is not None and len(set(nodes.values())) > 1:
            lag, since = late
            node = nodes.get(lag.rank, "")
            if node and node not in [verdict.node for verdict in verdicts]:
                text = lag.text(node)
                verdicts.append(self._verdict(node, lag.rank, "likely", text, nodes, since))
        if self._suspect is not None and self._windows >= _LEAST_WINDOWS:
            verdicts += self._slow(self._suspect, nodes, [verdict.node for verdict in verdicts])
        links = self._links.update(samples, now)
        if not verdicts and len(set(nodes.values())) > 1:
            for link in [link for link in links if link.names_node] or links[:1]:
                rank = _only_rank(link.node, nodes)
                confidence: Confidence = "likely" if link.names_node else "undecided"
                text = link.text(rank)
                verdicts.append(self._verdict(link.node, rank, confidence, text, nodes, link.since))
        queued = self._queues.update(samples, now)
        # Whoever loses what it sends, or is slow by durations, explains full queues elsewhere too.
        if queued is not None and not verdicts and len(set(nodes.values())) > 1:
            rank = _only_rank(queued.node, nodes)
            text = queued.text(rank)
            verdicts.append(
                self._verdict(queued.node, rank, "undecided", text, nodes, queued.since)
            )
        return verdicts

    def _evaluate(self, found: _Suspect | None, now: float) -> None:
        """Take in the suspect of one window."""
        before = self._suspect
        if found is None:
            self._windows = 0
        elif before is not None and (found.node, found.rank) == (before.node, before.rank):
            self._windows += 1
        else:
            self._windows, self._since = 1, now - transfers.WINDOW_SECONDS
        self._suspect = found

    def _slow(
        self, found: _Suspect, nodes: Mapping[int, str], named: Collection[str]
    ) -> list[Verdict]:
        if found.node in named:
            return []
        worst = max(found.slow, key=lambda slow: slow.share)
        group, taken = worst.transfers.group, worst.transfers.seconds
        text = (
            f"{worst.transfers.collective} of group {group.name} (ranks "
            f"{format_ranks(group.members)}) takes {1000 * taken:.3g} ms beside the waiting, "
            f"{taken / worst.usual:.2g} times as long as in groups of its kind"
        )
        if len(found.slow) > 1:
            text += f", and so do {len(found.slow) - 1} more"
        if not found.node:
            text += "; no single node explains it: a rail, a switch, or uneven work"
            return [self._verdict("", None, "undecided", text, nodes, self._since)]
        who = f"rank {found.rank} on node {found.node}"
        text += f"; all have {who if found.rank is not None else f'node {found.node}'} in common"
        return [self._verdict(found.node, found.rank, "likely", text, nodes, self._since)]

    def _verdict(
        self,
        node: str,
        rank: int | None,
        confidence: Confidence,
        text: str,
        nodes: Mapping[int, str],
        since: float,
    ) -> Verdict:
        others = tuple(sorted(other for other, place in nodes.items() if place != node))
        return Verdict(
            self.job_id,
            node,
            rank,
            "communication_straggler",
            "hardware",
            confidence,
            "inspect",
            text,
            others if node else (),
            since,
        )


def _only_rank(node: str, nodes: Mapping[int, str]) -> int | None:
    ranks = [rank for rank, place in nodes.items() if place == node]
    return ranks[0] if len(ranks) == 1 else None


def suspect(found: Comparison, nodes: Mapping[int, str]) -> _Suspect | None:
    """Return what slow groups have in common; None if none is slow.

    A rank that is in all of them and in no normal group explains them, so does a node. Groups
    inside a node know nothing of its network, and those across nodes nothing of its own links.
    """
    for across in (True, False):
        slow = tuple(s for s in found.slow if (len(s.transfers.nodes) > 1) is across)
        normal = [each for each in found.normal if (len(each.nodes) > 1) is across]
        if not slow:
            continue
        members = [[str(rank) for rank in s.transfers.group.members] for s in slow]
        others = [[str(rank) for rank in each.group.members] for each in normal]
        ranks = [int(rank) for rank in common_nodes(members, others)]
        places = {nodes.get(rank, "") for rank in ranks}
        if len(places) == 1:
            return _Suspect(places.pop(), ranks[0] if len(ranks) == 1 else None, slow)
        named = common_nodes([s.transfers.nodes for s in slow], [each.nodes for each in normal])
        return _Suspect(named[0] if len(named) == 1 else "", None, slow)
    return None
