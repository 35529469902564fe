"""The own transfer time of each group's collectives, and which groups take longer than others.

A collective takes as long at its last rank as the transfer does; what the others spend beyond that
is waiting. So the least time among a group's ranks is compared, with groups of the same kind: as
many ranks, inside a node or across nodes, the same operation and size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from peerwatch_detector.diagnosis.collectives.members import Claims, count_claims, resolve
from peerwatch_detector.diagnosis.collectives.slowness.slow_groups import slow_groups
from peerwatch_detector.diagnosis.collectives.snapshot import Group
from peerwatch_detector.diagnosis.diagnoser import Samples

# Windows of this length are compared, and none twice: four scrapes of 15 s, as rates need some.
WINDOW_SECONDS = 60.0
# Of sizes that differ by more, the times per collective are not compared. Chosen: half of the 1.2
# from which on a group is slow.
_SAME_SIZE = 1.1
_BY_GROUP = "(group, collective)"
_TOTAL = "{ {{- job -}} }[1m]"
QUERIES: Mapping[str, str] = {
    # Of same-named groups on different nodes, each has its own: the node tells them apart.
    "transfer": (
        f"min by (node, group, collective) (rate(collective_duration_seconds_total{_TOTAL})) > 0"
    ),
    "calls": f"max by {_BY_GROUP} (rate(collective_completed_total{_TOTAL})) > 0"
    f" and on {_BY_GROUP} max by {_BY_GROUP} (rate(collective_duration_seconds_total{_TOTAL})) > 0",
    "volume": f"max by {_BY_GROUP} (rate(collective_bus_bytes_total{_TOTAL})) > 0"
    f" and on {_BY_GROUP} max by {_BY_GROUP} (rate(collective_duration_seconds_total{_TOTAL})) > 0",
    "membership": "max by (group, description, members) (collective_group_info{ {{- job -}} })"
    " and on () (max(rate(collective_duration_seconds_total{ {{- job -}} }[1m])) > 0)",
}


@dataclass(frozen=True, slots=True)
class Transfers:
    """The transfers of one group in one operation.

    Parameters
    ----------
    group
        Which; its members are known.
    collective
        The operation.
    nodes
        On which the members run.
    seconds
        Own duration of one of them.
    size
        Bytes on the slowest link for one of them; 0 if not known.
    calls
        How many there are per second.
    """

    group: Group
    collective: str
    nodes: frozenset[str]
    seconds: float
    size: float
    calls: float

    @property
    def kind(self) -> tuple[str, str, int, bool]:
        """What it has in common with those it is compared with; their sizes are compared, too."""
        # Some number their groups in the description.
        plain = re.sub(r"\d+", "#", self.group.description)
        return self.collective, plain, len(self.group.members), len(self.nodes) > 1


@dataclass(frozen=True, slots=True)
class Slow:
    """Transfers that take longer than those of the same kind.

    Parameters
    ----------
    transfers
        Which.
    usual
        Seconds that the median group takes.
    """

    transfers: Transfers
    usual: float

    @property
    def share(self) -> float:
        """For which share of its time the group waits for it, beyond the usual."""
        return (self.transfers.seconds - self.usual) * self.transfers.calls


@dataclass(frozen=True, slots=True)
class Comparison:
    """All groups that have some of their kind to compare with."""

    slow: tuple[Slow, ...]
    normal: tuple[Transfers, ...]


def read_transfers(samples: Samples, nodes: Mapping[int, str]) -> list[Transfers]:
    """Return what the answers to ``QUERIES`` say; a group whose members are not known is left out.

    Parameters
    ----------
    samples
        The answers.
    nodes
        The node of each rank.
    """
    claims = count_claims(series.labels for series in samples.get("membership", ()))
    calls, volume = _by_kind(samples, "calls"), _by_kind(samples, "volume")
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for series in samples.get("transfer", ()):
        key = series.labels.get("group", ""), series.labels.get("collective", "")
        shares.setdefault(key, {})[series.labels.get("node", "")] = float(series.values[-1])
    found = []
    for (name, collective), by_node in sorted(shares.items()):
        rate = calls.get((name, collective), 0.0)
        for group in resolve(name, claims.get(name, Claims()), ()):
            places = frozenset(nodes[rank] for rank in group.members if rank in nodes)
            heard = [by_node[node] for node in places if node in by_node]
            # Who waits least may be on a node that is not heard.
            if not rate or not places or len(heard) < len(places):
                continue
            size = volume.get((name, collective), 0.0) / rate
            found.append(Transfers(group, collective, places, min(heard) / rate, size, rate))
    return found


def compare(transfers: Iterable[Transfers], least_share: float) -> Comparison:
    """Tell groups that are slow from those that are not.

    Parameters
    ----------
    transfers
        Of all groups.
    least_share
        Of its time, that a group must lose by it to be called slow.
    """
    slow: list[Slow] = []
    normal: list[Transfers] = []
    for alike in _alike(transfers):
        named = {each.group.name: each for each in alike}
        times = {name: each.seconds for name, each in named.items()}
        usual = median(times.values())
        chosen = slow_groups(times)
        if len(times) > 2:
            normal += [each for name, each in named.items() if name not in chosen]
        found = (Slow(named[name], usual) for name in chosen)
        slow += [each for each in found if each.share >= least_share]
    return Comparison(tuple(slow), tuple(normal))


def _alike(transfers: Iterable[Transfers]) -> list[list[Transfers]]:
    """Return them in lists of one kind and size."""
    kinds: dict[tuple[str, str, int, bool], list[Transfers]] = {}
    for each in transfers:
        kinds.setdefault(each.kind, []).append(each)
    found: list[list[Transfers]] = []
    for members in kinds.values():
        smallest = -1.0
        for each in sorted(members, key=lambda transfer: transfer.size):
            if smallest < 0 or each.size > _SAME_SIZE * smallest:
                smallest = each.size
                found.append([])
            found[-1].append(each)
    return found


def _by_kind(samples: Samples, name: str) -> dict[tuple[str, str], float]:
    return {
        (series.labels.get("group", ""), series.labels.get("collective", "")): float(
            series.values[-1]
        )
        for series in samples.get(name, ())
    }
