"""What a job remembers between cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.baseline import Baseline
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.continuity import Streaks
from peerwatch_detector.evidence import Trail
from peerwatch_detector.explain import Explanation
from peerwatch_detector.progress import Phase, Progress
from peerwatch_detector.scores import Finding, Streak

_NO_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(slots=True)
class MetricState:
    """What one metric of one job remembers between cycles."""

    similarity: Streaks
    zscore: Streaks
    baseline: Baseline
    high: Trail
    low: Trail
    stepwise: bool
    judged_until: int = 0
    normal: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    z: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    peak: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    coverage: float = 0.0
    common_cause: bool = False
    roles: dict[str, Baseline] = field(default_factory=dict)

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
        old = self.similarity.nodes
        if nodes != old:
            for name in ("normal", "z", "peak"):
                values = dict(zip(old, getattr(self, name), strict=True))
                setattr(self, name, np.array([values.get(node, np.nan) for node in nodes]))
        for part in (self.similarity, self.zscore, self.high, self.low):
            part.follow(nodes)
        self.baseline.follow(nodes, gpus)
        self.roles = {role: self.roles.get(role) or self.baseline.empty() for role in groups}
        for role, members in groups.items():
            self.roles[role].follow(members, gpus)

    @property
    def streaks(self) -> tuple[Streaks, ...]:
        """The streaks of the method in use, which keep a finding standing."""
        if self.stepwise:
            return (self.high.streaks, self.low.streaks)
        return (self.similarity, self.zscore)

    def continuity(self) -> NDArray[np.float64]:
        """Return the length of every node's longest streak, shape (n_nodes,)."""
        used = self.streaks if self.stepwise else (self.similarity,)
        longest: NDArray[np.float64] = np.max([one.seconds() for one in used], axis=0)
        return longest


@dataclass(slots=True)
class JobState:
    """What one job remembers between cycles: streaks, findings and why, who was silent when."""

    metrics: dict[str, MetricState] = field(default_factory=dict)
    standing: dict[str, Finding] = field(default_factory=dict)
    recent: list[Finding] = field(default_factory=list)
    explanations: dict[Finding, Explanation] = field(default_factory=dict)
    streaks: list[Streak] = field(default_factory=list)
    last_silent: dict[str, float] = field(default_factory=dict)
    progress: Progress | None = None
    stepped_until: int = 0
    phase: Phase = field(default_factory=Phase)
    idle_seconds: float = 0.0
    halted_seconds: float = 0.0
    worked_at: float = -np.inf
    waiting_since: float | None = None


def new_metric_state(config: DetectorConfig) -> MetricState:
    """Return the empty memory of a metric that is seen for the first time."""
    gap = 0.0 if config.method == "minder" else config.continuity.gap_seconds
    # The paper's methods judge every sample, which may come every few seconds.
    step = max(1.0, config.step_seconds)
    return MetricState(
        Streaks(gap, step),
        Streaks(gap, step),
        Baseline(config.similarity.baseline_seconds),
        Trail(gap),
        Trail(gap),
        stepwise=config.method == "peerwatch",
    )
