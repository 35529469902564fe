"""One metric's new windows on their way into its deviations, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.continuity import LONGEST_HOLE, DeviationTracker
from peerwatch_detector.detection.methods.minder.windows import Candidates, MetricWindows
from peerwatch_detector.detection.scores import NodeScores
from peerwatch_detector.detection.similarity import Mask
from peerwatch_detector.detection.time_grid import elapsed
from peerwatch_detector.detection.zscores import zscores
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.base import Model


@dataclass(slots=True)
class MetricMemory:
    """What one metric remembers between cycles.

    Parameters
    ----------
    tracker
        Who has been the candidate for how long.
    scores
        The newest, to be shown.
    peak
        By node, the score of its deviation in the last window in which it was the candidate.
    evaluated_until
        Unix time of the last window's end.
    """

    tracker: DeviationTracker
    scores: NodeScores = field(default_factory=NodeScores)
    peak: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    evaluated_until: float = 0.0

    @classmethod
    def empty(cls, config: DetectorConfig) -> MetricMemory:
        """Return the memory of a metric that is seen for the first time.

        The paper's deviations have no pauses, and it evaluates every sample.
        """
        hole = LONGEST_HOLE * config.resolution_seconds
        return cls(DeviationTracker(0.0, config.step_seconds, hole_seconds=hole))

    def follow(self, nodes: tuple[str, ...]) -> None:
        """Go on with these nodes."""
        if nodes != self.tracker.nodes:
            known = dict(zip(self.tracker.nodes, self.peak, strict=True))
            self.peak = np.array([known.get(node, np.nan) for node in nodes])
        self.tracker.follow(nodes)
        self.scores.follow(nodes)


@dataclass(slots=True)
class MetricTracking:
    """One metric's new windows, and how far they are taken into its deviations.

    Parameters
    ----------
    rank, metric, frame, memory
        Whose windows.
    windows
        The windows.
    candidates
        Their candidates, by the metric alone or by all joined.
    taken
        How many windows are in the deviations.
    """

    rank: int
    metric: MetricConfig
    frame: JobFrame
    memory: MetricMemory
    windows: MetricWindows
    candidates: Candidates
    taken: int = 0

    @classmethod
    def of(
        cls,
        rank: int,
        metric: MetricConfig,
        frame: JobFrame,
        memory: MetricMemory,
        model: Model,
        config: DetectorConfig,
    ) -> MetricTracking:
        """Begin with the windows that end after those that the memory has."""
        windows = MetricWindows(metric, frame, model, config, memory.evaluated_until)
        candidates = Candidates(
            windows.ends,
            windows.observed(),
            windows.points,
            windows.distance,
            config.similarity_threshold,
            memory.tracker.hole_seconds,
        )
        return cls(rank, metric, frame, memory, windows, candidates)

    @property
    def running_since(self) -> float:
        """When the deviation began that runs since the last cycle; NaN = none does."""
        start = self.memory.tracker.start
        running = start[np.isfinite(start)]
        return float(running[0]) if len(running) else np.nan

    def row(self, time: float) -> int | None:
        """Return which window ends at a time, if there is one."""
        ends = self.candidates.ends
        row = int(np.searchsorted(ends, time))
        return row if row < len(ends) and ends[row] == time else None

    def candidate(self, time: float) -> int:
        """Return the candidate at a time that was compared; negative = none."""
        row = self.row(time)
        return -1 if row is None else int(self.candidates.found[row])

    def update(self, time: float) -> None:
        """Take the windows up to a time into the deviations; others than compared have nobody."""
        ends, found = self.candidates.ends, self.candidates.found
        until = int(np.searchsorted(ends, time, side="right"))
        marked = self.taken + np.flatnonzero(found[self.taken : until] >= 0)
        for row in marked:
            self._rest(int(row))
            self._update(int(row))
        self._rest(until)

    def _update(self, row: int) -> None:
        mask: Mask = np.zeros(len(self.frame.nodes), dtype=bool)
        mask[self.candidates.found[row]] = True
        # A window with another candidate ends a deviation, whether its node has samples or not.
        end = float(self.candidates.ends[row])
        self.memory.tracker.update(end, mask, np.ones_like(mask))
        self.taken = row + 1

    def _rest(self, until: int) -> None:
        """Take windows without a candidate into the deviations."""
        rows = slice(self.taken, until)
        self.memory.tracker.rest(self.candidates.ends[rows][self.candidates.observed[rows]])
        self.taken = max(self.taken, until)

    def finish(self) -> None:
        """Take in all windows; the next cycle cannot compare those that were skipped."""
        self.update(np.inf)
        for node in np.flatnonzero(np.isfinite(self.memory.tracker.start)):
            rows = np.flatnonzero(self.candidates.found == node)
            if len(rows):
                self.memory.peak[node] = self.candidates.score(int(rows[-1]))
        if len(self.candidates.ends):
            self.memory.evaluated_until = float(self.candidates.ends[-1])

    def correct_quiet(self, name: str, enough: float) -> None:
        """Correct for how long a node has been quiet, in windows that were not compared.

        Parameters
        ----------
        name
            Of the node.
        enough
            Seconds beyond which more do not matter.
        """
        tracker = self.memory.tracker
        if name not in tracker.nodes:
            return
        node = tracker.nodes.index(name)
        quiet, before, step = 0.0, None, tracker.step_seconds
        for row in np.flatnonzero(self.candidates.observed[: self.taken])[::-1]:
            end = float(self.candidates.ends[row])
            longer = 0.0 if before is None else min(elapsed(end, before), step)
            quiet = round(quiet + longer, 3)
            if quiet >= min(enough, tracker.quiet[node]):
                break
            if self.candidates.is_candidate(int(row), node):
                tracker.quiet[node] = quiet
            before = end

    def keep_newest(self, config: DetectorConfig) -> None:
        """Keep what the newest window tells of the nodes, to be shown."""
        scores, last = self.memory.scores, len(self.windows.ends) - 1
        if last < 0:
            return
        cut = self.windows.cut(last)
        levels = np.where(np.isfinite(cut).all(axis=1), cut.mean(axis=1, dtype=np.float64), np.nan)
        scores.normal = self.windows.scores(last)
        scores.zscores = zscores(levels[None])[0]
        newest = self.frame.values[:, -config.window_length :]
        scores.coverage = float(np.isfinite(newest).any(axis=1).mean())
