"""When nodes were out of service: not ready, or cordoned."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from peerwatch_reliability.records import OutOfService
from peerwatch_reliability.sources.kubernetes.queries import NODE_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_reliability.sources.kubernetes.facts import NodeState

# Over a gap in the series as short as Prometheus' own look-back (5 minutes) a state goes on.
_GAP_SECONDS = 300.0
# The node's lease runs out some 40 s after it died; its pods are known to be gone 5 minutes later,
# and are deleted after their grace. Chosen: the 40 s and one NODE_STEP, with some room.
_NOTICED_SECONDS = 120.0
_REASONS = {"not_ready": "not ready", "cordoned": "cordoned"}


def outages_of(states: Iterable[NodeState], until: float) -> list[OutOfService]:
    """Return the times out of service, by their start.

    Parameters
    ----------
    states
        Minutes at which nodes were out, in any order.
    until
        Unix seconds up to which there is anything: what lasts until then goes on.
    """
    by_kind: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for each in states:
        by_kind[each.node, each.kind].append(each.time)
    found = []
    for (node, kind), times in by_kind.items():
        times.sort()
        first = last = times[0]
        for time in [*times[1:], float("inf")]:
            if time - last > _GAP_SECONDS:
                end = None if last >= until - _GAP_SECONDS else last + NODE_STEP
                found.append(OutOfService(node, first, end, _REASONS.get(kind, kind)))
                first = time
            last = time
    return sorted(found, key=lambda each: (each.start, each.node))


class LostNodes:
    """Finds the loss of a node around the end of a pod.

    Parameters
    ----------
    outages
        Of all nodes; those for which one was not ready count.
    """

    def __init__(self, outages: Iterable[OutOfService]) -> None:
        self._of_node: defaultdict[str, list[OutOfService]] = defaultdict(list)
        for each in sorted(outages, key=lambda each: each.start):
            if each.reason == _REASONS["not_ready"]:
                self._of_node[each.node].append(each)

    def before(self, node: str, time: float) -> float | None:
        """Return since when a node was not ready at a time or soon after; None: it was ready."""
        of_node = self._of_node.get(node, [])
        index = bisect_right(of_node, time + _NOTICED_SECONDS, key=lambda each: each.start) - 1
        if index < 0:
            return None
        last = of_node[index]
        is_over = last.end is not None and last.end < time - _NOTICED_SECONDS
        return None if is_over else last.start
