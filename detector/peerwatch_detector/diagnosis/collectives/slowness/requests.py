"""Whose network does not complete the work requests that its rank posts, in a job that gets on.

Aegis (NSDI'25, phase 2): of ranks that have launched the same collectives, the one whose work
requests are posted and do not complete has the network at fault. In a job that stands the two
counts of one rank differ for good; in a slow one they differ for a while, again and again: its
requests take longer from post to completion. That time is the number of requests in flight over
those that complete per second (Little's law), and is compared among the ranks of a group, which
post alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from peerwatch_detector.diagnosis.by_rank import by_rank
from peerwatch_detector.diagnosis.diagnoser import Samples

# Requests of this many times the usual time are late, and must be of this many times those of the
# next rank: a congested fabric makes several late. Chosen: the factors of round trips
# (round_trips.py), and of nodes that are suspected (suspicion.py).
_LATE_TIMES = 3.0
_NEXT_TIMES = 2.0
# Fewer in the mean are chance: counts are read between a post and its completion, so one may be in
# flight at any reading.
_LEAST_IN_FLIGHT = 2.0
# A median needs a rest that it describes: two others are the fewest.
_LEAST_RANKS = 3

_POSTED = 'collective_work_requests_total{ {{- job -}} ,state="posted"}'
_COMPLETED = 'collective_work_requests_total{ {{- job -}} ,state="completed"}'
REQUEST_QUERIES: Mapping[str, str] = {
    # Mean over the scrapes of a minute: one reading catches a rank in the midst of a burst.
    "in_flight": (
        f"sum by (node, rank, group) (avg_over_time({_POSTED}[1m]))"
        f" - sum by (node, rank, group) (avg_over_time({_COMPLETED}[1m])) > 0"
    ),
    "completing": f"sum by (node, rank, group) (rate({_COMPLETED}[1m])) > 0",
}


@dataclass(frozen=True, slots=True)
class Lagging:
    """A rank whose work requests complete late.

    Parameters
    ----------
    group, rank
        Of which process group, and who.
    seconds, usual
        From post to completion in the mean, and the median of the other ranks.
    in_flight
        Requests that were posted and had not completed, in the mean.
    ranks
        How many ranks of the group are compared.
    """

    group: str
    rank: int
    seconds: float
    usual: float
    in_flight: float
    ranks: int

    def text(self, node: str) -> str:
        """Return what is seen, in a sentence."""
        return (
            f"rank {self.rank} on node {node}: {self.in_flight:.3g} of its work requests in group "
            f"{self.group} are posted and not completed in the mean; they take "
            f"{1000 * self.seconds:.3g} ms, those of its {self.ranks - 1} peers "
            f"{1000 * self.usual:.3g} ms"
        )


def lagging(samples: Samples) -> Lagging | None:
    """Return the one rank whose requests complete late, of the group in which they do so most.

    Parameters
    ----------
    samples
        The answers to ``REQUEST_QUERIES``; without these series, and where several ranks or none
        are late, it is None.
    """
    waiting = _by_group(samples, "in_flight")
    found = [
        late
        for group, rates in _by_group(samples, "completing").items()
        if (late := _late_of(group, waiting.get(group, {}), rates)) is not None
    ]
    if len({late.rank for late in found}) != 1:
        return None
    return max(found, key=lambda late: late.seconds - late.usual)


def _late_of(
    group: str, in_flight: Mapping[int, float], rates: Mapping[int, float]
) -> Lagging | None:
    if len(rates) < _LEAST_RANKS:
        return None
    seconds = {rank: in_flight.get(rank, 0.0) / rate for rank, rate in rates.items()}
    worst = max(seconds, key=lambda rank: (seconds[rank], -rank))
    rest = [taken for rank, taken in seconds.items() if rank != worst]
    usual = median(rest)
    if in_flight.get(worst, 0.0) < _LEAST_IN_FLIGHT:
        return None
    if seconds[worst] < _LATE_TIMES * usual or seconds[worst] < _NEXT_TIMES * max(rest):
        return None
    return Lagging(group, worst, seconds[worst], usual, in_flight[worst], len(rates))


def _by_group(samples: Samples, name: str) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for rank, labels, value in by_rank(samples.get(name, ())):
        found.setdefault(labels.get("group", ""), {})[rank] = value
    return found


class Requests:
    """Remembers since when the same rank's requests have completed late."""

    def __init__(self, least_seconds: float) -> None:
        self._least_seconds = least_seconds
        self._rank: int | None = None
        self._since = 0.0

    def update(self, samples: Samples, now: float) -> tuple[Lagging, float] | None:
        """Return who has long been late, and since when (Unix time); None if nobody."""
        late = lagging(samples)
        if late is None or late.rank != self._rank:
            self._rank, self._since = (None if late is None else late.rank), now
        if late is None or now - self._since < self._least_seconds:
            return None
        return late, self._since
