"""How likely a node is to fail again: the posterior mean of its rate of faults.

A node's faults count the less the older they are, and so does the time for which it could have one.
Between nodes rates follow a gamma distribution, which is fitted to the fleet by its moments; a node
with little time is drawn towards the fleet's mean. What this is worth was measured on a year of
real faults (docs/reliability.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from peerwatch_reliability.accounting.intervals import gamma_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from peerwatch_reliability.lemons.episodes import Episode
    from peerwatch_reliability.records import Window

_DAY = 86_400.0
# Chosen around the 0.8 of the one year of real faults that is known. Nodes differ by at least so
# much even where their counts do not show it (5), and by no more than if one of twenty had all
# faults (0.05).
_LEAST_SHAPE, _LARGEST_SHAPE = 0.05, 5.0
# Chosen: of fewer nodes the variance says nothing.
_FEWEST_NODES = 10


class Score(NamedTuple):
    """What is expected of a node.

    Parameters
    ----------
    node
        It.
    faults
        Within the window.
    shape, days
        Of the gamma distribution of its rate.
    ratio
        ``mean`` over the fleet's.
    """

    node: str
    faults: int
    shape: float
    days: float
    ratio: float

    @property
    def mean(self) -> float:
        """Faults per day that are expected of it."""
        return self.shape / self.days

    @property
    def low(self) -> float:
        """Where the 95 % interval of the mean begins."""
        return gamma_quantile(0.025, self.shape) / self.days

    @property
    def high(self) -> float:
        """Where it ends."""
        return gamma_quantile(0.975, self.shape) / self.days


def scores_of(
    episodes: Iterable[Episode],
    nodes: Iterable[str],
    window: Window,
    half_life_days: float,
    up_days: Mapping[str, float] | None = None,
) -> list[Score]:
    """Return the scores of all nodes, the highest first.

    Parameters
    ----------
    episodes
        Faults; those outside the window do not count.
    nodes
        The fleet: also those without a fault.
    window
        The time that is looked at.
    half_life_days
        After so long a fault, and the time in which it could have come, count half.
    up_days
        For how many days of the window a node was there; it is taken for the newest of them. Others
        were there all the time.
    """
    counts = dict.fromkeys(nodes, 0)
    decayed = dict.fromkeys(counts, 0.0)
    for each in episodes:
        if each.node in counts and window.start <= each.start <= window.end:
            counts[each.node] += 1
            decayed[each.node] += 0.5 ** ((window.end - each.start) / _DAY / half_life_days)
    days = {
        node: _decayed_days(
            min(window.days, (up_days or {}).get(node, window.days)), half_life_days
        )
        for node in counts
    }
    total, whole = sum(decayed.values()), sum(days.values())
    if whole <= 0:
        return []
    # Without any fault, half of one is taken to have come: the mean is not known to be 0.
    mean = (total or 0.5) / whole
    shape = _shape(decayed, days, mean)
    rate = shape / mean
    found = []
    for node, count in counts.items():
        a, b = shape + decayed[node], rate + days[node]
        found.append(Score(node, count, a, b, a / b / mean))
    return sorted(found, key=lambda score: (-score.mean, score.node))


def _decayed_days(days: float, half_life: float) -> float:
    """Return the time that counts of the newest so many days."""
    scale = half_life / 0.6931471805599453
    return float(scale * (1 - 0.5 ** (days / half_life)))


def _shape(decayed: Mapping[str, float], days: Mapping[str, float], mean: float) -> float:
    """Return the gamma's shape by moments: what counts vary more than chance makes them."""
    seen = [node for node in decayed if days[node] > 0]
    if len(seen) < _FEWEST_NODES:
        return 1.0
    expected = sum(mean * days[node] for node in seen) / len(seen)
    variance = sum((decayed[node] - mean * days[node]) ** 2 for node in seen) / (len(seen) - 1)
    # Decayed counts vary by less than their mean: each is a sum of weights of at most 1.
    excess = variance - expected * 0.75
    if excess <= 0:
        return _LARGEST_SHAPE
    return min(_LARGEST_SHAPE, max(_LEAST_SHAPE, expected**2 / excess))
