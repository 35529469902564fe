"""Which node loses what it sends over TCP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peerwatch_detector.diagnosis.diagnoser import Samples

# TCP's throughput collapses with the loss of some per cent (Mathis et al., "The macroscopic
# behavior of the TCP congestion avoidance algorithm", 1997); networks of clusters lose far less
# than a thousandth.
_LEAST_LOSS = 0.02
# Segments per second that are sent again. Chosen: at the loss above 250 are sent, 3 Mbit/s of full
# ones; fewer are a pause, not a transfer.
_LEAST_RATE = 5.0
# A burst stays in the rates for their window of a minute and a scrape of 15 s.
_LEAST_SECONDS = 75.0
# Where others lose as much, it is not this node's link. Chosen: beside another node that loses too
# much this one must lose a tenth.
_TIMES_THE_NEXT = 5.0

_AGAIN = "rate(host_tcp_retransmitted_segments_total[1m])"
_SENT = "rate(host_tcp_sent_segments_total[1m])"
LOSS_QUERIES: Mapping[str, str] = {
    "loss": (
        f"max by (node) ({_AGAIN} / ({_AGAIN} + {_SENT}) > {_LEAST_LOSS} and {_AGAIN} > "
        f"{_LEAST_RATE:g}) and on (node) max by (node)"
        " (collective_last_sequence{ {{- job -}} })"
    ),
}


@dataclass(frozen=True, slots=True)
class Loss:
    """A node that loses what it sends: which share of its segments, and since when (Unix time)."""

    node: str
    share: float
    since: float

    def text(self, rank: int | None) -> str:
        """Return what is seen, in a sentence; with the rank if it is the node's only one."""
        who = f"rank {rank} on node {self.node}" if rank is not None else f"node {self.node}"
        return (
            f"{who} sends {self.share:.0%} of its TCP segments again: the collectives of the job "
            "wait for what it sends"
        )


class Losses:
    """Remembers since when nodes of a job lose what they send."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, samples: Samples, now: float) -> Loss | None:
        """Return the one node that has long lost far more than any other of the job."""
        shares = {s.labels.get("node", ""): float(s.values[-1]) for s in samples.get("loss", ())}
        self._since = {node: self._since.get(node, now) for node in shares}
        if not shares:
            return None
        worst = max(shares, key=lambda node: (shares[node], node))
        rest = [share for node, share in shares.items() if node != worst]
        if now - self._since[worst] < _LEAST_SECONDS:
            return None
        if rest and shares[worst] < _TIMES_THE_NEXT * max(rest):
            return None
        return Loss(worst, shares[worst], self._since[worst])
