"""Which node's link is slow though nothing is lost, from TCP round trips between nodes.

What waits in the queue before a slow link delays acknowledgements both of what its node sends and
of what it is sent. So all pairs with it are slow, and of its neighbours one pair each. The rule by
which pairs name a node is that of pings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from peerwatch_detector.diagnosis.diagnoser import Samples
from peerwatch_detector.diagnosis.root.algorithm.ping_matrix import (
    LEAST_SENT,
    Cell,
    Fault,
    ping_faults,
)

# Beyond the shortest round trip of the same pair: what waits in queues. A network of one site adds
# microseconds, a full buffer of a switch some milliseconds (16 MB at 25 Gbit/s: 5 ms).
_LEAST_SECONDS = 0.005
# With fewer pairs none of them shows what is usual for the job. Chosen: four times the limit above,
# since nothing else speaks for it.
_LEAST_PAIRS = 3
_LEAST_SECONDS_ALONE = 0.02
# The factor of pings (ping_table.py).
_TIMES_THE_USUAL = 3.0
# What a slow node holds up comes in bursts, which delay others a little. Chosen: the same factor,
# from above.
_SHARE_OF_THE_WORST = 1 / 3
# What is sent while nothing else is does not wait: pairs that carry less than this share of the
# busiest pair's say nothing of queues. Chosen: pairs of one job's rings carry alike.
_LEAST_SHARE = 0.1
# A mean of a minute, and a scrape of 15 s. A burst is over by then, a checkpoint as well.
_LONG_SECONDS = 75.0
# Two scrapes of 15 s may lack the pair, or show it a little below a limit.
_PAUSE_SECONDS = 30.0
# Whoever moves so many times what the job's median node does fills its link by itself. Chosen:
# nodes of a ring move alike, a parameter server as much as all its clients together.
_TIMES_THE_TRAFFIC = 2.0

_OF_JOB = "and on (node) max by (node) (rank_info{ {{ job }} })"
_MOVED = " + ".join(
    f'sum by (node) (rate(host_network_{direction}_bytes_total{{interface!="lo"}}[1m]))'
    for direction in ("transmit", "receive")
)
_MEAN = "avg_over_time(host_tcp_round_trip_seconds[1m])"
# Of a job in which none is long, nothing is sent to the detector.
_IF_LONG = f"and on () max({_MEAN} {_OF_JOB}) >= {_LEAST_SECONDS:g}"
ROUND_TRIP_QUERIES: Mapping[str, str] = {
    "round_trips": f"max by (node, address, peer) ({_MEAN}) {_OF_JOB} {_IF_LONG}",
    "least_round_trips": (
        f"max by (node, address, peer) (host_tcp_least_round_trip_seconds) {_OF_JOB} {_IF_LONG}"
    ),
    "carried": (
        "max by (node, address, peer) (rate(host_tcp_acknowledged_bytes_total[1m])) "
        f"{_OF_JOB} {_IF_LONG}"
    ),
    "moved": f"{_MOVED} {_OF_JOB} {_IF_LONG}",
}

_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Trip:
    """Between two nodes: the mean round trip of a minute, and the shortest known."""

    seconds: float
    least: float

    @property
    def queued(self) -> float:
        """What of it is waiting."""
        return max(0.0, self.seconds - self.least)


@dataclass(frozen=True, slots=True)
class SlowLink:
    """What slow pairs have in common; whether a node is at fault says ``names_node``.

    Parameters
    ----------
    fault
        A node, a place, or a path.
    seconds
        The longest mean round trip of its pairs, and of pairs that are not slow.
    why_open
        Why it is open whose fault it is; empty if a node's link is slow.
    since
        From when on (Unix time).
    """

    fault: Fault
    seconds: tuple[float, float]
    why_open: str
    since: float

    @property
    def node(self) -> str:
        """The node it is about; empty if it is none."""
        return self.fault.name if self.fault.what == "node" else ""

    @property
    def names_node(self) -> bool:
        """Whether the node's link is at fault."""
        return bool(self.node) and not self.why_open

    def text(self, rank: int | None) -> str:
        """Return what is seen, in a sentence; with the rank if it is the node's only one."""
        own, others = (1000 * seconds for seconds in self.seconds)
        partners = f"{self.fault.pairs} other{'s' if self.fault.pairs > 1 else ''}"
        if self.fault.what == "node":
            who = f"rank {rank} on node {self.node}" if rank is not None else f"node {self.node}"
            text = f"{who}: TCP round trips between its node and {partners} take {own:.3g} ms"
        else:
            who = f"{self.fault.what} {self.fault.name}" if self.fault.name else "most pairs"
            text = f"{who}: TCP round trips take {own:.3g} ms"
        if others > 0:
            text += f", those that are not slow {others:.2g} ms at most"
        return f"{text}: {self.why_open or 'what it sends or is sent waits for a slow link'}"


class SlowLinks:
    """Remembers since when links of a job's nodes are slow."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[SlowLink, float]] = {}

    def update(self, samples: Samples, now: float) -> list[SlowLink]:
        """Return what has long been slow, a short pause ago as well; what names a node first."""
        for fault, seconds, why_open in _found(_trips(samples), _busy(samples)):
            key = fault.what, fault.name
            since = self._known[key][0].since if key in self._known else now
            self._known[key] = SlowLink(fault, seconds, why_open, since), now
        self._known = {
            key: (link, last)
            for key, (link, last) in self._known.items()
            if now - last <= _PAUSE_SECONDS
        }
        long = [link for link, last in self._known.values() if last - link.since >= _LONG_SECONDS]
        return sorted(long, key=lambda link: (not link.names_node, link.fault.name))


def _found(
    trips: Mapping[_Pair, Trip], busy: Collection[str]
) -> Iterator[tuple[Fault, tuple[float, float], str]]:
    """Yield what is slow, how slow, and why it is open whose fault it is."""
    queued = {pair: trip.queued for pair, trip in trips.items()}
    known = set()
    for fault, seconds in _faults(queued, trips):
        known.add(fault.name)
        why_open = ""
        if fault.what != "node":
            why_open = "between them, or at one of both ends"
        elif fault.name in busy:
            why_open = "it moves far more than the others, which fills its link by itself"
        yield fault, seconds, why_open
    for fault, seconds in _faults({pair: trip.least for pair, trip in trips.items()}, trips):
        # As long as it is known: another site, or a link that was slow before.
        if fault.what == "node" and fault.name not in known:
            yield fault, seconds, "so it has always been, as far as is known"


def _faults(
    seconds: Mapping[_Pair, float], trips: Mapping[_Pair, Trip]
) -> Iterator[tuple[Fault, tuple[float, float]]]:
    """Yield what slow pairs have in common, and the longest round trips of its pairs and of others.

    Parameters
    ----------
    seconds
        By which pairs are slow.
    trips
        The mean round trips of all pairs.
    """
    slow = slow_pairs(seconds)
    cells = [
        # A round trip has no direction.
        Cell(source, destination, LEAST_SENT, LEAST_SENT if pair in slow else 0)
        for pair in seconds
        for source, destination in (pair, pair[::-1])
    ]
    well = max((trip.seconds for pair, trip in trips.items() if pair not in slow), default=0.0)
    longest = max((trips[pair].seconds for pair in slow), default=0.0)
    of_node: dict[str, float] = {}
    for pair in slow:
        for node in pair:
            of_node[node] = max(trips[pair].seconds, of_node.get(node, 0.0))
    for fault in ping_faults(cells, {}):
        yield fault, (of_node.get(fault.name, 0.0) if fault.what == "node" else longest, well)


def slow_pairs(seconds: Mapping[_Pair, float]) -> set[_Pair]:
    """Return the pairs that take far longer than the job's better ones."""
    if not seconds:
        return set()
    values = sorted(seconds.values())
    if len(values) < _LEAST_PAIRS:
        return {pair for pair, value in seconds.items() if value >= _LEAST_SECONDS_ALONE}
    # In a ring of four one node is in half of the pairs, and in a ring of three in most.
    usual = values[(len(values) - 1) // 4]
    limit = max(_LEAST_SECONDS, _TIMES_THE_USUAL * usual, _SHARE_OF_THE_WORST * values[-1])
    return {pair for pair, value in seconds.items() if value >= limit}


def _trips(samples: Samples) -> dict[_Pair, Trip]:
    """Return the round trips between nodes of the job that carry much, of both ends the longer."""
    mean = _numbers(samples, "round_trips")
    shortest, carried = _numbers(samples, "least_round_trips"), _numbers(samples, "carried")
    nodes: dict[str, set[str]] = {}
    for node, address, _ in mean:
        nodes.setdefault(address, set()).add(node)
    # An address that several nodes have, as of bridges of containers, is nobody's.
    ends = {
        key: (min(key[0], *others), max(key[0], *others))
        for key in mean
        if len(others := nodes.get(key[2], set())) == 1 and key[0] not in others
    }
    most = max((carried.get(key, 0.0) for key in ends), default=0.0)
    found: dict[_Pair, Trip] = {}
    for key, pair in sorted(ends.items()):
        if carried.get(key, most) < _LEAST_SHARE * most:
            continue
        trip = Trip(mean[key], min(mean[key], shortest.get(key, 0.0)))
        before = found.get(pair)
        if before is None or trip.queued > before.queued:
            found[pair] = trip
    return found


def _numbers(samples: Samples, name: str) -> dict[tuple[str, str, str], float]:
    found = {}
    for series in samples.get(name, ()):
        value = float(series.values[-1]) if len(series.values) else math.nan
        key = tuple(series.labels.get(label, "") for label in ("node", "address", "peer"))
        if math.isfinite(value) and all(key):
            found[key[0], key[1], key[2]] = value
    return found


def _busy(samples: Samples) -> set[str]:
    """Return the nodes that send and receive far more than the job's median node."""
    moved = {
        series.labels.get("node", ""): float(series.values[-1])
        for series in samples.get("moved", ())
        if len(series.values)
    }
    if not moved:
        return set()
    median = sorted(moved.values())[(len(moved) - 1) // 2]
    return {node for node, value in moved.items() if value > _TIMES_THE_TRAFFIC * median}
