"""What is known of the segments that have trained, and which of them are unlike the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from peerwatch_checks.evaluation import MIN_PEERS, limit_of
from peerwatch_checks.segments.division import Segment

# Seen by that many runs, it counts.
TWICE = 2


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a segment's steps.

    Parameters
    ----------
    seconds
        What a step's computing took on each node that answered.
    bandwidth
        Bus bandwidth of the segment's collectives in GB/s, that of the slower kind; None for one
        node, which has none.
    failure
        Why it did not come to an end, or whose result differs; empty if all is well.
    silent
        Nodes that said nothing at all.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float | None = None
    failure: str = ""
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What is no fault.

    Parameters
    ----------
    bandwidth
        Share that a part may be below the others.
    whole
        Share that what was cut may be below its parts: uplinks may be narrower by design.
    compute
        Share that a node's computing may take longer than its peers'.
    """

    bandwidth: float = 0.15
    whole: float = 0.3
    compute: float = 0.25


class Evidence:
    """All runs of segments so far.

    Parameters
    ----------
    tolerances
        What is no fault.

    Attributes
    ----------
    released
        Nodes that were handed back.
    """

    def __init__(self, tolerances: Tolerances) -> None:
        self._tolerances = tolerances
        self._runs: list[tuple[Segment, Trained]] = []
        self._seconds: dict[str, list[float]] = {}
        self.released: set[str] = set()

    def take(self, trained: Mapping[Segment, Trained]) -> None:
        """Add what came of a stage."""
        for segment, result in trained.items():
            self._runs.append((segment, result))
            for node, seconds in result.seconds.items():
                self._seconds.setdefault(node, []).append(seconds)

    def release(self, nodes: Iterable[str]) -> None:
        """Take note that nodes are handed back: they train no more."""
        self.released |= set(nodes)

    def low(self, segment: Segment) -> bool:
        """Whether a segment failed, or is below the best of all, when it last trained."""
        result = self._last(segment)
        return result is not None and self._is_low(result, self._best(), self._tolerances.bandwidth)

    def low_whole(self, segment: Segment) -> bool:
        """Whether a segment that was cut is below its parts by more than uplinks may cost."""
        result = self._last(segment)
        return result is not None and self._is_low(result, self._best(), self._tolerances.whole)

    def failure(self, node: str) -> str:
        """Return why the last run of a node failed; empty if it did not."""
        found = [result.failure for segment, result in self._runs if node in segment.nodes]
        return found[-1] if found else ""

    def silent(self, node: str) -> int:
        """Return in how many runs a node said nothing."""
        return sum(node in result.silent for _segment, result in self._runs)

    def slow(self, node: str) -> float:
        """Return how many times as long as its peers a node computes; 0 where that is usual."""
        own = self._seconds.get(node)
        peers = [values[-1] for name, values in self._seconds.items() if name != node]
        if not own or len(peers) < MIN_PEERS:
            return 0.0
        limit = limit_of(peers, self._tolerances.compute, higher_is_better=False)
        usual = median(peers)
        return own[-1] / usual if own[-1] > limit and usual > 0 else 0.0

    def runs(self, node: str) -> int:
        """Return how often a node's computing was timed."""
        return len(self._seconds.get(node, ()))

    def partners(self, node: str) -> dict[str, float]:
        """Return the partners that a node trained with alone, each with what they reached: GB/s.

        Of two runs with the same partner the better one counts.
        """
        found: dict[str, float] = {}
        for segment, result in self._runs:
            if node in segment.nodes and len(segment.nodes) == TWICE:
                (partner,) = (each for each in segment.nodes if each != node)
                value = 0.0 if result.failure else result.bandwidth or 0.0
                found[partner] = max(value, found.get(partner, 0.0))
        return found

    def is_low_pair(self, value: float) -> bool:
        """Whether two nodes reached less than most nodes have."""
        return value <= 0 or value < (1 - self._tolerances.bandwidth) * self.level

    @property
    def level(self) -> float:
        """The median over nodes of the best that each was part of, GB/s; 0 if nothing trained."""
        best: dict[str, float] = {}
        for segment, result in self._runs:
            if result.bandwidth is not None and not result.failure:
                for node in segment.nodes:
                    best[node] = max(best.get(node, 0.0), result.bandwidth)
        return median(best.values()) if best else 0.0

    def reached(self, segment: Segment) -> float:
        """Return what a segment reached when it last trained, GB/s; 0 if it failed."""
        result = self._last(segment)
        return 0.0 if result is None or result.failure else result.bandwidth or 0.0

    def _last(self, segment: Segment) -> Trained | None:
        found = [result for known, result in self._runs if known == segment]
        return found[-1] if found else None

    def _best(self) -> float:
        values = [r.bandwidth for _, r in self._runs if r.bandwidth is not None and not r.failure]
        return max(values, default=0.0)

    def _is_low(self, result: Trained, best: float, tolerance: float) -> bool:
        if result.failure:
            return True
        return result.bandwidth is not None and result.bandwidth < (1 - tolerance) * best
