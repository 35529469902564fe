"""Which candidates last (NSDI'25, section 4.4): deviations of the same node over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector import compiled
from peerwatch_detector.detection.places import places_of
from peerwatch_detector.detection.similarity import Mask
from peerwatch_detector.detection.time_grid import to_milliseconds

# A hole in the data longer than so many samples, of a second at most, ends a deviation: nothing is
# known about what lay in it.
LONGEST_HOLE = 120


class DeviationTracker:
    """Follows, per node of one metric, for how long it has been the candidate.

    Time runs in data: seconds in which a node could not be evaluated neither lengthen nor break a
    deviation, so that a hole in Prometheus does not clear a fault.

    Parameters
    ----------
    gap_seconds
        A pause up to this long inside a deviation does not break it.
    step_seconds
        Time between two steps; a step after a hole counts as one.
    lead_seconds
        How long before its first candidate a deviation begins.
    hole_seconds
        A hole in the data longer than this ends a deviation.
    """

    def __init__(
        self,
        gap_seconds: float,
        step_seconds: float = 1.0,
        lead_seconds: float = 0.0,
        hole_seconds: float = LONGEST_HOLE,
    ) -> None:
        self.gap_seconds = gap_seconds
        self.step_seconds = step_seconds
        self.lead_seconds = lead_seconds
        self.hole_seconds = hole_seconds
        self._whole = float(step_seconds).is_integer()
        self.nodes: tuple[str, ...] = ()
        self.start: NDArray[np.float64] = np.empty(0)
        self.last: NDArray[np.float64] = np.empty(0)
        self.quiet: NDArray[np.float64] = np.empty(0)
        self._evaluated: NDArray[np.float64] = np.empty(0)

    def follow(self, nodes: tuple[str, ...]) -> None:
        """Go on with these nodes: known ones keep their deviation, new ones begin without."""
        if nodes == self.nodes:
            return
        places = places_of(nodes, self.nodes)
        for name, blank in (
            ("start", np.nan),
            ("last", np.nan),
            ("quiet", 0.0),
            ("_evaluated", np.nan),
        ):
            setattr(self, name, np.append(getattr(self, name), blank)[places])
        self.nodes = nodes

    def update(self, time: float, candidates: Mask, evaluated: Mask) -> None:
        """Take in one step.

        Parameters
        ----------
        time
            Unix time of the step.
        candidates, evaluated
            Shape (n_nodes,): who is a candidate, and about whom anything is known at all.
        """
        elapsed = self._exact(np.where(np.isfinite(self._evaluated), time - self._evaluated, 0.0))
        lost = evaluated & (elapsed > self.hole_seconds)
        begin = candidates & (~np.isfinite(self.start) | lost)
        # Only evaluated time counts as quiet.
        quiet = evaluated & ~candidates
        longer = self.quiet + np.where(quiet, np.minimum(elapsed, self.step_seconds), 0)
        self.quiet = np.where(candidates, 0.0, self._exact(longer))
        self.start = np.where(begin, round(time - self.lead_seconds, 3), self.start)
        self.last = np.where(candidates, time, self.last)
        broken = quiet & ((self.quiet > self.gap_seconds) | lost)
        self.start = np.where(broken, np.nan, self.start)
        self._evaluated = np.where(evaluated, time, self._evaluated)

    def pass_by(self, time: float, evaluated: Mask) -> None:
        """Do what ``update`` does while no node has a deviation and there is no candidate."""
        if self._whole and compiled.ready():
            _add_quiet(self.quiet, self._evaluated, evaluated, float(time), self.step_seconds)
            return
        elapsed = self._exact(np.where(np.isfinite(self._evaluated), time - self._evaluated, 0.0))
        more = np.minimum(elapsed, self.step_seconds)
        self.quiet = self._exact(self.quiet + np.where(evaluated, more, 0.0))
        self._evaluated = np.where(evaluated, time, self._evaluated)

    def _exact(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take out what rounding added; sums of whole seconds have nothing of it."""
        return seconds if self._whole else to_milliseconds(seconds)

    def rest(self, times: NDArray[np.float64]) -> None:
        """Take in steps at which all could be evaluated and nobody was a candidate, shape (n,)."""
        if not len(times):
            return
        nobody = np.zeros(len(self.nodes), dtype=bool)
        self.update(float(times[0]), nobody, ~nobody)
        between = self._exact(np.diff(times))
        self.quiet = self._exact(self.quiet + np.minimum(between, self.step_seconds).sum())
        lost = (between > self.hole_seconds).any()
        self.start[(self.quiet > self.gap_seconds) | lost] = np.nan
        self._evaluated[:] = times[-1]

    def seconds(self) -> NDArray[np.float64]:
        """Return the length of every node's present deviation, shape (n_nodes,), 0 = none."""
        return np.where(np.isfinite(self.start), self._exact(self.last - self.start), 0.0)

    def quiet_seconds(self, node: str) -> float | None:
        """Return for how long a node has not been the candidate; None = it is not known."""
        return float(self.quiet[self.nodes.index(node)]) if node in self.nodes else None


@compiled.compiled
def _add_quiet(
    quiet: NDArray[np.float64],
    evaluated_at: NDArray[np.float64],
    evaluated: Mask,
    time: float,
    longest: float,
) -> None:
    """Add the time since each was last evaluated, a step at most, to the quiet of the evaluated."""
    for node in range(len(quiet)):
        if evaluated[node]:
            if np.isfinite(evaluated_at[node]):
                quiet[node] += min(time - evaluated_at[node], longest)
            evaluated_at[node] = time
