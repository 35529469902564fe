"""The deviations of all nodes on one side of one metric, followed from step to step."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.continuity import LONGEST_HOLE, DeviationTracker
from peerwatch_detector.detection.methods.peerwatch.effects import Side
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.places import places_of
from peerwatch_detector.detection.similarity import Mask
from peerwatch_detector.detection.time_grid import elapsed, to_milliseconds

# Deviations of one metric that began within so many samples, of a second at most, of each other
# began together: congestion reaches the next node within a minute.
_TOGETHER = 60
# A deviation's strength is its largest deviation, forgotten at this rate per step: half of it in
# seven steps.
_FORGET = 0.9
# What a node showed so many seconds of the job's clock ago or less, and the job worked on, it may
# show again for the same reason. A default baseline is as long.
_BORNE_SECONDS = 600.0


class SideTracker:
    """The deviations of all nodes on one side of one metric.

    Parameters
    ----------
    gap_seconds
        As for ``DeviationTracker``.
    step_seconds
        Time between two evaluated steps.
    resolution_seconds
        As the setting: the length of what is counted in samples.
    """

    def __init__(
        self, gap_seconds: float, step_seconds: float = 5.0, resolution_seconds: float = 1.0
    ) -> None:
        self.deviations = DeviationTracker(
            gap_seconds, step_seconds, step_seconds, LONGEST_HOLE * resolution_seconds
        )
        self.together_seconds = _TOGETHER * resolution_seconds
        self.since: NDArray[np.float64] = np.empty(0)
        self.strength: NDArray[np.float64] = np.empty(0)
        # When the job last worked in spite of a deviation, and how strong that was; and how strong
        # the one was that came shortly before the running one.
        self.seen_at: NDArray[np.float64] = np.empty(0)
        self.seen_strength: NDArray[np.float64] = np.empty(0)
        self.borne: NDArray[np.float64] = np.empty(0)
        # Unix time since which the job has worked in spite of it again and again.
        self.first: NDArray[np.float64] = np.empty(0)
        self.gpu: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.held: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self.of_many: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self.common = False
        # Whether any deviation runs; asked of every metric at every step.
        self.runs = False
        # Whether any of ``held`` and ``of_many`` may be true.
        self._marks = False

    def follow(self, nodes: tuple[str, ...]) -> None:
        """Go on with these nodes, as ``DeviationTracker.follow``."""
        if nodes == self.deviations.nodes:
            return
        places = places_of(nodes, self.deviations.nodes)
        for name, blank in (
            ("since", np.nan),
            ("strength", 0.0),
            ("seen_at", np.nan),
            ("seen_strength", 0.0),
            ("borne", 0.0),
            ("first", np.nan),
            ("gpu", -1),
            ("held", False),
            ("of_many", False),
        ):
            setattr(self, name, np.append(getattr(self, name), blank)[places])
        self.deviations.follow(nodes)
        self.runs = bool(len(self.running()))

    def update(
        self, step: JobStep, found: Side, evaluated: Mask, unobservable: Mask | None = None
    ) -> None:
        """Take in the candidates of one step.

        Parameters
        ----------
        step
            The job.
        found
            The candidates.
        evaluated, unobservable
            Shape (n_nodes,): about whom anything is known, and whose peers' level has collapsed.
            What a node showed until then is held: it was the first. None = nobody's has.
        """
        seen = evaluated & (found.strength >= 1)
        hidden = np.zeros_like(seen) if unobservable is None else unobservable
        # When the levels are back, what was held has explained nothing.
        self.deviations.start = np.where(self.held & ~hidden, np.nan, self.deviations.start)
        self.held = np.isfinite(self.deviations.start) & ~seen & hidden
        # One of many begins no deviation, and is not flagged while it is that; but where a phase of
        # the job begins or ends, others differ for seconds, which ends no deviation.
        self.of_many = evaluated & found.of_many
        began = np.isfinite(self.deviations.start)
        candidates = (seen & (began | ~self.of_many)) | self.held
        before = self.deviations.start
        self.deviations.update(step.clock, candidates, evaluated)
        begun = candidates & (self.deviations.start != before)
        self.since = np.where(begun, elapsed(self.deviations.lead_seconds, step.time), self.since)
        kept = np.where(begun, 0.0, _FORGET * self.strength)
        self.strength = np.where(seen, np.maximum(kept, found.strength), self.strength)
        lately = step.clock - self.seen_at <= _BORNE_SECONDS
        self.borne = np.where(begun, np.where(lately, self.seen_strength, 0.0), self.borne)
        if not step.phase.waiting:
            first = elapsed(self.deviations.lead_seconds, step.time)
            self.first = np.where(seen & ~lately, first, self.first)
            self.seen_at = np.where(seen, step.clock, self.seen_at)
            self.seen_strength = np.where(seen, self.strength, self.seen_strength)
        self.gpu = np.where(seen, found.gpu, self.gpu)
        self.common, self.runs = found.common, bool(len(self.running()))
        self._marks = True

    def pass_by(self, step: JobStep, evaluated: Mask, *, common: bool) -> None:
        """Do what ``update`` does while nobody has a deviation and there is no candidate.

        Parameters
        ----------
        step, evaluated
            As for ``update``.
        common
            Whether candidates were dropped because too many nodes deviate alike.
        """
        if self._marks:
            self.held, self.of_many = np.zeros((2, len(evaluated)), dtype=np.bool_)
            self._marks = False
        self.deviations.pass_by(step.clock, evaluated)
        self.common = common

    def forget(self, kept: Collection[str]) -> None:
        """End the deviations of nodes that are learned anew, which are all but those ``kept``."""
        known = np.array([node in kept for node in self.deviations.nodes], dtype=np.bool_)
        self.deviations.start = np.where(known, self.deviations.start, np.nan)
        self.held &= known
        self.runs = bool(len(self.running()))

    def running(self) -> NDArray[np.intp]:
        """Return the indices of the nodes with a deviation."""
        return np.flatnonzero(np.isfinite(self.deviations.start))

    def together(self) -> NDArray[np.int64]:
        """Return for every running deviation how many, itself included, began together with it."""
        start = self.deviations.start[self.running()]
        ordered = np.sort(start)
        latest = to_milliseconds(start + self.together_seconds)
        earliest = to_milliseconds(start - self.together_seconds)
        above = np.searchsorted(ordered, latest, side="right")
        below = np.searchsorted(ordered, earliest, side="left")
        return (above - below).astype(np.int64)
