"""Which groups transfer slowly, and which node they have in common: the communication straggler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

# Slow is what takes this much longer than the same collective in the median group of its kind
# (Greyhound's limit).
SLOW_RATIO = 1.2
# Of fewer groups of a kind the median is one of those that may be slow.
_LEAST_GROUPS = 3


def slow_groups(seconds: Mapping[str, float], ratio: float = SLOW_RATIO) -> tuple[str, ...]:
    """Return the groups whose collectives take longer than those of the others.

    Parameters
    ----------
    seconds
        Own duration of a collective (the shortest of its ranks') by group; all of one kind: as
        many ranks, the same operation, as many bytes.
    ratio
        To the median group, from which on it is slow.
    """
    if len(seconds) < _LEAST_GROUPS:
        return ()
    usual = median(seconds.values())
    return tuple(sorted(name for name, taken in seconds.items() if taken >= ratio * usual > 0))


def common_nodes(
    slow: Collection[Collection[str]], normal: Collection[Collection[str]]
) -> tuple[str, ...]:
    """Return the nodes that explain why groups are slow.

    Parameters
    ----------
    slow, normal
        The nodes of each group that is slow, and of each that is not.

    Returns
    -------
    tuple
        The nodes that are in every slow group and in no normal one. More than one of them cannot
        be told apart; none means that it is not a single node.
    """
    if not slow:
        return ()
    common = set.intersection(*(set(nodes) for nodes in slow))
    return tuple(sorted(common.difference(*normal)))
