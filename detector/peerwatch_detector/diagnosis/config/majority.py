"""Which values of a job's configuration only a minority of its nodes has.

ConfigCheck of Aegis (NSDI'25, Algorithm 1) compares hosts with a list of what should be. Nobody
keeps such a list of everything; the nodes of a job are each other's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peerwatch_detector.diagnosis.config.keys import ENVIRONMENT, UNSET, Aspect, aspect_of

# Two nodes that differ are no majority and a minority.
LEAST_NODES = 3
# What more nodes have than this is part of the job, and no list of culprits. Chosen: a table that a
# person still reads; with as many values of 64 nodes each, watch.py bounds what is published.
MOST_NAMED = 64
MOST_DEVIATIONS = 64
# Chosen: half as many, since a split names nobody.
MOST_SPLITS = 32


@dataclass(frozen=True, slots=True, order=True)
class Counted:
    """How many nodes of a job have a value."""

    key: str
    value: str
    nodes: int


@dataclass(frozen=True, slots=True, order=True)
class Deviation:
    """A value that a minority has.

    Parameters
    ----------
    nodes
        How many nodes have it.
    key, value
        What they have; the value is ``(unset)`` for a variable that their ranks lack.
    majority
        What more than half have.
    of_nodes
        How many nodes have a value at all.
    """

    nodes: int
    key: str
    value: str
    majority: str
    of_nodes: int


@dataclass(frozen=True, slots=True, order=True)
class Split:
    """A key of which no value is that of more than half, or the minority is too large to name."""

    key: str
    values: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs within a job, each list bounded; the smallest minorities come first."""

    deviations: tuple[Deviation, ...] = ()
    splits: tuple[Split, ...] = ()


def compare(counts: Sequence[Counted]) -> Comparison:
    """Return who is in the minority, in what.

    A node without a value is not compared, with one exception: a variable that others set, on a
    node whose variables could be read, is unset there.

    Parameters
    ----------
    counts
        How many nodes have each value of each key; a key and a value stand once.
    """
    readable = sum(count.nodes for count in counts if count.key == ENVIRONMENT)
    whole: dict[str, Counter[str]] = {}
    devices: dict[str, dict[str, Counter[str]]] = {}
    for count in counts:
        aspect = aspect_of(count.key)
        if aspect.device:
            by_device = devices.setdefault(aspect.name, {})
            by_device.setdefault(aspect.device, Counter())[count.value] += count.nodes
        else:
            whole.setdefault(aspect.name, Counter())[count.value] += count.nodes
    deviations: set[Deviation] = set()
    splits: set[Split] = set()
    for name in sorted(whole.keys() | devices.keys()):
        aspect = Aspect(name)
        shared, apart = whole.get(name, Counter()), devices.get(name, {})
        own = max((by_value.total() for by_value in apart.values()), default=0)
        unset = readable - shared.total() - own if aspect.is_variable else 0
        if unset > 0:
            # Of a node whose ranks lack it altogether there is no key, of some there is UNSET.
            shared = shared + Counter({UNSET: unset})
        for device in sorted(apart) or [""]:
            found, split = _compared(aspect, device, shared, apart.get(device, Counter()))
            deviations |= found
            splits |= split
    return Comparison(
        tuple(sorted(_once(deviations))[:MOST_DEVIATIONS]), tuple(sorted(splits)[:MOST_SPLITS])
    )


def _compared(
    aspect: Aspect, device: str, shared: Mapping[str, int], own: Mapping[str, int]
) -> tuple[set[Deviation], set[Split]]:
    """Compare one device, of nodes whose devices agree and of those that name it."""
    values = Counter(shared) + Counter(own)
    total = values.total()
    if total < LEAST_NODES or len(values) < 2:
        return set(), set()
    (majority, most), *_ = values.most_common(1)
    if 2 * most <= total or total - most > MOST_NAMED:
        return set(), {Split(aspect.of(device), len(values), total)}
    found = set()
    for key, counts in ((aspect.name, shared), (aspect.of(device), own)):
        for value, nodes in counts.items():
            if value != majority and nodes:
                found.add(Deviation(nodes, key, value, majority, total))
    return found, set()


def _once(deviations: set[Deviation]) -> list[Deviation]:
    """Return them with each value of a key once, compared with the most frequent majority.

    Nodes whose devices agree are compared device by device with nodes whose do not: they differ
    in the same value, perhaps from another one for each device.
    """
    best: dict[tuple[str, str], Deviation] = {}
    for deviation in sorted(deviations):
        pair = deviation.key, deviation.value
        before = best.get(pair)
        if before is None or deviation.of_nodes > before.of_nodes:
            best[pair] = deviation
    return list(best.values())
