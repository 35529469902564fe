"""Episodes of a node: faults of which each begins soon after the last one ended are one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DAY = 86_400.0
# Chosen: one return more or less is a tenth of them at most.
_FEWEST_RETURNS = 10


class Episode(NamedTuple):
    """A fault of a node, in Unix seconds; ``end`` None: it still stands."""

    node: str
    start: float
    end: float | None


def merged(episodes: Iterable[Episode], within_seconds: float) -> list[Episode]:
    """Return the episodes by time, those of a node joined where they follow soon on one another."""
    found: list[Episode] = []
    for of_node in by_node(episodes).values():
        current = of_node[0]
        for each in of_node[1:]:
            if current.end is None or each.start - current.end < within_seconds:
                last = (
                    None if current.end is None or each.end is None else max(current.end, each.end)
                )
                current = current._replace(end=last)
            else:
                found.append(current)
                current = each
        found.append(current)
    return sorted(found, key=lambda each: (each.start, each.node))


def by_node(episodes: Iterable[Episode]) -> Mapping[str, list[Episode]]:
    """Return the episodes of each node, by time."""
    found: defaultdict[str, list[Episode]] = defaultdict(list)
    for each in episodes:
        found[each.node].append(each)
    for of_node in found.values():
        of_node.sort(key=lambda each: each.start)
    return found


class Repairs(NamedTuple):
    """How often a returned node has a fault again.

    Parameters
    ----------
    returns
        Returns to service.
    again
        Share after which a fault followed within 1, 7 and 28 days, of the returns that were
        observed for so long; None: these are too few, or there was no return at all.
    """

    returns: int
    again: Mapping[int, float | None] | None


def repair_effectiveness(
    episodes: Sequence[Episode], until: float, days: Sequence[int] = (1, 7, 28)
) -> Repairs:
    """Return how often returned nodes fail again.

    Parameters
    ----------
    episodes
        Not merged: a fault soon after a return is what is counted.
    until
        End of what was observed: what becomes of later returns is not known.
    days
        The times.
    """
    returns = 0
    observed, again = dict.fromkeys(days, 0), dict.fromkeys(days, 0)
    for of_node in by_node(episodes).values():
        for number, each in enumerate(of_node):
            if each.end is None or each.end > until:
                continue
            returns += 1
            following = of_node[number + 1] if number + 1 < len(of_node) else None
            for limit in days:
                if each.end + limit * _DAY <= until:
                    observed[limit] += 1
                    again[limit] += (
                        following is not None and following.start - each.end <= limit * _DAY
                    )
    shares = {
        limit: again[limit] / count if count >= _FEWEST_RETURNS else None
        for limit, count in observed.items()
    }
    return Repairs(returns, shares if returns else None)
