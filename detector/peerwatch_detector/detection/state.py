"""What a job remembers between cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.continuity import DeviationTracker
from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.findings import Deviation, Finding
from peerwatch_detector.detection.methods.peerwatch.baseline import Baseline
from peerwatch_detector.detection.methods.peerwatch.deviation import Compared
from peerwatch_detector.detection.methods.peerwatch.evidence import Moment, Trail
from peerwatch_detector.detection.methods.peerwatch.progress import Choice, Phase, Progress

_NO_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(slots=True)
class MetricState:
    """What one metric of one job remembers between cycles.

    ``compared`` is what it showed, by step, as far as that is not weighed yet; ``evaluated_until``
    the step up to which it was compared.
    """

    similarity: DeviationTracker
    zscore: DeviationTracker
    baseline: Baseline
    high: Trail
    low: Trail
    stepwise: bool
    evaluated_until: int = 0
    normal: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    z: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    peak: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    coverage: float = 0.0
    common_cause: bool = False
    roles: dict[str, Baseline] = field(default_factory=dict)
    compared: dict[int, Compared] = field(default_factory=dict)

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
            self.compared.clear()
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
    def needed_from(self) -> int:
        """Return the tick from which samples are needed: that of the first candidate to weigh."""
        shown = (time for time, found in self.compared.items() if found.anybody)
        return min([self.evaluated_until, *shown])

    @property
    def deviations(self) -> tuple[DeviationTracker, ...]:
        """The deviations of the method in use, which keep a finding standing."""
        if self.stepwise:
            return (self.high.deviations, self.low.deviations)
        return (self.similarity, self.zscore)

    def continuity(self) -> NDArray[np.float64]:
        """Return the length of every node's longest deviation, shape (n_nodes,)."""
        used = self.deviations if self.stepwise else (self.similarity,)
        longest: NDArray[np.float64] = np.max([one.seconds() for one in used], axis=0)
        return longest


@dataclass(slots=True)
class JobState:
    """What one job remembers between cycles: deviations, findings and why, who was silent when.

    ``ahead`` are the steps that metrics were compared at, but that are not weighed yet.
    """

    metrics: dict[str, MetricState] = field(default_factory=dict)
    standing: dict[str, Finding] = field(default_factory=dict)
    recent: list[Finding] = field(default_factory=list)
    explanations: dict[Finding, Explanation] = field(default_factory=dict)
    deviations: list[Deviation] = field(default_factory=list)
    last_absent: dict[str, float] = field(default_factory=dict)
    progress: Progress | None = None
    stepped_until: int = 0
    phase: Phase = field(default_factory=Phase)
    idle_seconds: float = 0.0
    halted_seconds: float = 0.0
    worked_at: float = -np.inf
    waiting_since: float | None = None
    ahead: list[Course] = field(default_factory=list)

    def course(self, moment: Moment) -> Course:
        """Return what the job does now, to come back to it."""
        choices = self.progress.choices() if self.progress else {}
        clock = self.idle_seconds, self.halted_seconds, self.worked_at
        return Course(moment, *clock, choices)

    def back_to(self, course: Course) -> None:
        """Stand at a step again at which it stood before."""
        moment = course.moment
        self.phase, self.waiting_since = moment.phase, moment.waiting_since
        self.idle_seconds, self.halted_seconds = course.idle_seconds, course.halted_seconds
        self.worked_at, self.stepped_until = course.worked_at, moment.time
        if self.progress:
            self.progress.choose(course.choices)


@dataclass(frozen=True, slots=True)
class Course:
    """What a job does at one step, and what is known of its progress then; see ``JobState``."""

    moment: Moment
    idle_seconds: float
    halted_seconds: float
    worked_at: float
    choices: Mapping[str, Choice]


def new_metric_state(config: DetectorConfig) -> MetricState:
    """Return the empty memory of a metric that is seen for the first time."""
    gap = 0.0 if config.method == "minder" else config.continuity.gap_seconds
    # The paper's methods evaluate every sample, which may come every few seconds.
    step = max(1.0, config.step_seconds)
    return MetricState(
        DeviationTracker(gap, step),
        DeviationTracker(gap, step),
        Baseline(config.similarity.baseline_seconds),
        Trail(gap),
        Trail(gap),
        stepwise=config.method == "peerwatch",
    )
