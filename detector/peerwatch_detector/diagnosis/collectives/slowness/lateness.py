"""Who arrives last at collectives, so that the others wait: the compute straggler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Unit = TypeVar("Unit", int, str)

# Of the mean duration: whoever arrives last waits least (Aegis, section 5.2).
_SHORT = 0.8


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When the ranks of one group arrived at the same collectives.

    Parameters
    ----------
    ranks
        The ranks, in order of the columns.
    starts
        Shape (collectives, ranks): Unix time at which each launched; NaN where it is unknown.
    ends
        Shape (collectives, ranks): when it completed; None where the source cannot know.
    """

    ranks: tuple[int, ...]
    starts: Array
    ends: Array | None = None

    @property
    def lateness(self) -> Array:
        """How long after the first each arrived, shape (collectives, ranks)."""
        first: Array = np.nanmin(self.starts, axis=1, keepdims=True)
        return self.starts - first

    @property
    def transfer(self) -> Array:
        """The own duration of each collective, shape (collectives,): the shortest of its ranks'.

        What is longer at the others is waiting.
        """
        if self.ends is None:
            return np.full(len(self.starts), np.nan)
        shortest: Array = np.nanmin(self.ends - self.starts, axis=1)
        return shortest

    @property
    def typical_lateness(self) -> Array:
        """Median over the collectives, shape (ranks,): a pause of a rank is not its rate."""
        typical: Array = np.nanmedian(self.lateness, axis=0)
        return typical


def late_ranks(arrivals: Arrivals, limit: float) -> tuple[int, ...]:
    """Return the ranks that typically arrive more than ``limit`` seconds after the first.

    Where ends are known, only those whose own duration is short as well: whoever arrives late by
    the clock and waits as long as the others has a wrong clock.
    """
    late = arrivals.typical_lateness > limit
    if arrivals.ends is not None:
        durations: Array = np.nanmedian(arrivals.ends - arrivals.starts, axis=0)
        late &= durations < _SHORT * np.nanmean(durations)
    return tuple(rank for rank, is_late in zip(arrivals.ranks, late, strict=True) if is_late)


def compute_stragglers(
    lateness: Mapping[str, Mapping[Unit, float]], limit: float
) -> tuple[Unit, ...]:
    """Return the ranks, or nodes, whose own work makes them late, in ascending order.

    A rank that waited for another one arrives late at the next group, too. In the small groups
    that meet more often the two are seen apart: the smallest groups of a rank decide.

    Parameters
    ----------
    lateness
        By group and rank, typically how long after the first rank of the group.
    limit
        From which on a rank is late.
    """
    sizes: dict[Unit, int] = {}
    for ranks in lateness.values():
        for rank in ranks:
            sizes[rank] = min(len(ranks), sizes.get(rank, len(ranks)))
    in_time = {
        rank
        for ranks in lateness.values()
        for rank, late in ranks.items()
        if len(ranks) == sizes[rank] and not late > limit
    }
    return tuple(sorted(sizes.keys() - in_time))


def typical(groups: Mapping[str, Arrivals]) -> dict[str, dict[int, float]]:
    """Return the typical lateness by group and rank; ranks without any are left out."""
    return {
        name: {
            rank: float(seconds)
            for rank, seconds in zip(arrivals.ranks, arrivals.typical_lateness, strict=True)
            if np.isfinite(seconds)
        }
        for name, arrivals in groups.items()
    }


def align(
    times: Mapping[int, Mapping[int, float]], *, at_most: int | None = None
) -> tuple[tuple[int, ...], Array]:
    """Return the ranks and the times of the collectives that all of them have.

    Parameters
    ----------
    times
        By rank and sequence number, a Unix time.
    at_most
        How many collectives, the newest ones; None for all.

    Returns
    -------
    tuple
        Ranks in ascending order, and times of shape (collectives, ranks).
    """
    ranks = tuple(sorted(times))
    common = sorted(set.intersection(*(set(times[rank]) for rank in ranks))) if ranks else []
    kept: Sequence[int] = common if at_most is None else common[-at_most:]
    table = [[times[rank][sequence] for rank in ranks] for sequence in kept]
    return ranks, np.array(table, dtype=np.float64).reshape(len(kept), len(ranks))
