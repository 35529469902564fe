"""What method peerwatch remembers of one metric of a job between cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.continuity import DeviationTracker
from peerwatch_detector.detection.methods.peerwatch.baseline import Baseline
from peerwatch_detector.detection.methods.peerwatch.effects import StepCandidates
from peerwatch_detector.detection.methods.peerwatch.side_tracker import SideTracker
from peerwatch_detector.detection.scores import NodeScores

_NO_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(slots=True)
class MetricMemory:
    """What one metric of one job showed.

    Parameters
    ----------
    baseline
        What is normal for every unit.
    high, low
        The deviations above and below the peers.
    scores
        The newest, to be shown.
    roles
        By role, what is normal for its units among their own.
    compared
        Its candidates by step, as far as they are not assessed yet.
    evaluated_until
        The step up to which it was compared, in Unix time.
    common_cause
        Whether deviations are left out because too many nodes have them.
    """

    baseline: Baseline
    high: SideTracker
    low: SideTracker
    scores: NodeScores = field(default_factory=NodeScores)
    roles: dict[str, Baseline] = field(default_factory=dict)
    compared: dict[float, StepCandidates] = field(default_factory=dict)
    evaluated_until: float = 0.0
    common_cause: bool = False

    @classmethod
    def empty(cls, config: DetectorConfig) -> MetricMemory:
        """Return the memory of a metric that is seen for the first time."""
        gap, step = config.continuity.gap_seconds, config.evaluation_seconds
        resolution = config.resolution_seconds
        return cls(
            Baseline(config.similarity.baseline_seconds, resolution),
            SideTracker(gap, step, resolution),
            SideTracker(gap, step, resolution),
        )

    def follow(
        self,
        nodes: tuple[str, ...],
        gpus: tuple[str, ...],
        groups: Mapping[str, tuple[str, ...]] = _NO_GROUPS,
    ) -> None:
        """Go on with these nodes: what is known of those that stay is kept.

        Parameters
        ----------
        nodes, gpus
            Of the job.
        groups
            By role, the nodes that are compared among themselves.
        """
        if nodes != self.scores.nodes:
            self.compared.clear()
        self.scores.follow(nodes)
        self.high.follow(nodes)
        self.low.follow(nodes)
        self.baseline.follow(nodes, gpus)
        self.roles = {role: self.roles.get(role) or self.baseline.empty() for role in groups}
        for role, members in groups.items():
            self.roles[role].follow(members, gpus)

    @property
    def needed_from(self) -> float:
        """Unix time from which samples are needed: that of the first candidate to assess."""
        shown = (time for time, found in self.compared.items() if found.anybody)
        return min([self.evaluated_until, *shown])

    @property
    def trackers(self) -> tuple[DeviationTracker, DeviationTracker]:
        """The deviations on both sides."""
        return self.high.deviations, self.low.deviations

    def continuity(self) -> NDArray[np.float64]:
        """Return the length of every node's longest deviation, shape (n_nodes,)."""
        longest: NDArray[np.float64] = np.max([each.seconds() for each in self.trackers], axis=0)
        return longest
