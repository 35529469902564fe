"""The seven signals of a lemon (Kokolis et al., arXiv 2410.21680), and what a threshold would flag.

The paper chose its thresholds by hand from the distribution of each signal and does not print them:
so the curve is shown, for a person to choose by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_reliability.accounting.attempts import Attempt
    from peerwatch_reliability.accounting.attribution import Attribution
    from peerwatch_reliability.accounting.goodput import Key


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of a node within the window.

    Parameters
    ----------
    excl_jobid_count
        Jobs whose owners excluded the node.
    xid_cnt
        Different XIDs.
    tickets
        Tickets about it: the most that stood at once.
    out_count
        Times for which it was taken out of service.
    multi_node_node_fails, single_node_node_fails
        Jobs of several nodes, and of it alone, that failed because of it.
    single_node_node_failure_rate
        Share of the jobs of it alone that did.
    """

    excl_jobid_count: int = 0
    xid_cnt: int = 0
    tickets: int = 0
    out_count: int = 0
    multi_node_node_fails: int = 0
    single_node_node_fails: int = 0
    single_node_node_failure_rate: float = 0.0


NAMES = tuple(field.name for field in fields(Signals))


def signals_of(
    nodes: Iterable[str],
    attempts: Iterable[Attempt],
    why: Mapping[Key, Attribution],
    out: Iterable[str],
    xids: Mapping[str, int],
    tickets: Mapping[str, int],
) -> dict[str, Signals]:
    """Return the signals of all nodes.

    Parameters
    ----------
    nodes
        The fleet.
    attempts, why
        Of all jobs, and why each ended.
    out
        A node for each time that it was taken out of service.
    xids, tickets
        Different XIDs, and tickets, by node.
    """
    excluded: Counter[str] = Counter()
    several: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    ran_alone: Counter[str] = Counter()
    for each in attempts:
        if each.link == "first":
            excluded.update(set(each.row.excluded))
        is_alone = len(each.row.nodes) == 1
        if is_alone:
            ran_alone[each.row.nodes[0]] += 1
        attribution = why.get(each.key)
        if attribution is None or not attribution.is_failure_of_infrastructure:
            continue
        # Of several nodes, only the one that is known to have failed.
        node = each.row.nodes[0] if is_alone else attribution.node
        if node:
            (alone if is_alone else several)[node] += 1
    times_out = Counter(out)
    return {
        node: Signals(
            excluded[node],
            xids.get(node, 0),
            tickets.get(node, 0),
            times_out[node],
            several[node],
            alone[node],
            alone[node] / ran_alone[node] if ran_alone[node] else 0.0,
        )
        for node in nodes
    }


class Threshold(NamedTuple):
    """What one threshold of one signal would flag: the nodes at or above it."""

    signal: str
    least: float
    nodes: int
    share: float


def threshold_curve(signals: Mapping[str, Signals]) -> list[Threshold]:
    """Return what every threshold that makes a difference would flag, by signal."""
    found = []
    for name, values in sorted_signals(signals).items():
        for least in sorted({value for value in values if value > 0}):
            count = len(values) - bisect_left(values, least)
            found.append(Threshold(name, float(least), count, count / len(values)))
    return found


def sorted_signals(signals: Mapping[str, Signals]) -> dict[str, list[float]]:
    """Return each signal of all nodes of a fleet, in ascending order."""
    return {name: sorted(getattr(each, name) for each in signals.values()) for name in NAMES}


def reasons_of(node: Signals, fleet: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Return the signals in which a node is above 95 % of the fleet.

    Parameters
    ----------
    node
        The node's.
    fleet
        As ``sorted_signals`` returns them.
    """
    found = []
    for name, values in fleet.items():
        value = getattr(node, name)
        if value > 0 and bisect_left(values, value) >= 0.95 * len(values):
            found.append(name)
    return tuple(found)
