"""Which node cannot get rid of what it sends over TCP, though nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peerwatch_detector.diagnosis.diagnoser import Samples

# A mean of a minute. Between two bursts of gradients queues are empty, so on a link that keeps up
# the mean is far below what one burst leaves there. Chosen: a sixteenth of what one connection may
# have in its queue (4 MiB, the end of Linux' tcp_wmem).
_LEAST_BYTES = 262_144
# A burst stays in the mean for its window of a minute and a scrape of 15 s.
_LEAST_SECONDS = 75.0
# Where others' queues are as full, the fabric or the receivers of all are slow. Chosen: the factor
# of lost segments (loss.py).
_TIMES_THE_NEXT = 5.0

QUEUE_QUERIES: Mapping[str, str] = {
    "queued": (
        f"max by (node) (avg_over_time(host_tcp_send_queue_bytes[1m])) > {_LEAST_BYTES}"
        " and on (node) max by (node) (collective_last_sequence{ {{- job -}} })"
    ),
}


@dataclass(frozen=True, slots=True)
class Queue:
    """A node whose send queues stay full: bytes in the mean, and since when (Unix time)."""

    node: str
    size: float
    since: float

    def text(self, rank: int | None) -> str:
        """Return what is seen, in a sentence; with the rank if it is the node's only one."""
        who = f"rank {rank} on node {self.node}" if rank is not None else f"node {self.node}"
        return (
            f"{who}: {self.size / 1e6:.2g} MB of what it sends over TCP wait to be delivered in "
            "the mean, far more than on any other node of the job, and little is lost: its link "
            "is slow, or whoever receives it is"
        )


class Queues:
    """Remembers since when nodes of a job have full send queues."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, samples: Samples, now: float) -> Queue | None:
        """Return the one node whose queues have long been far fuller than any other's."""
        sizes = {s.labels.get("node", ""): float(s.values[-1]) for s in samples.get("queued", ())}
        self._since = {node: self._since.get(node, now) for node in sizes}
        if not sizes:
            return None
        worst = max(sizes, key=lambda node: (sizes[node], node))
        rest = [size for node, size in sizes.items() if node != worst]
        if now - self._since[worst] < _LEAST_SECONDS:
            return None
        if rest and sizes[worst] < _TIMES_THE_NEXT * max(rest):
            return None
        return Queue(worst, sizes[worst], self._since[worst])
