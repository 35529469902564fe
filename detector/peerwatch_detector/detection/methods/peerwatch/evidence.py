"""From candidates to deviations, and how long a deviation must last by what else is known.

A deviation counts for more while the job waits for one of its ranks, for less while the job goes on
as before. The clock of deviations stops while the job is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.continuity import LONGEST_HOLE, DeviationTracker
from peerwatch_detector.detection.findings import Deviation, Severity
from peerwatch_detector.detection.methods.peerwatch.company import (
    had_time,
    has_company,
    outlived_the_job,
)
from peerwatch_detector.detection.methods.peerwatch.effects import Side
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.similarity import Mask
from peerwatch_detector.detection.time_grid import elapsed, to_milliseconds

# Deviations of one metric that began within so many samples, of a second at most, of each other
# began together: congestion reaches the next node within a minute.
_TOGETHER = 60
# More nodes than this that began together have a common cause; congestion spreads to two.
_MOST_TOGETHER = {"work": 2, "load": 2, "network": 1, "own": 2}
# A deviation's strength is its largest deviation, forgotten at this rate per step: half of it in
# seven steps.
_FORGET = 0.9
# While the job waits for long, what began so many times the slack earlier may explain it.
_LATE_SLACK = 2.0
# What was seen only before the level of all collapsed must have begun within this share of the
# slack.
_HELD_SLACK = 0.5
# And have been this large, in minimum effect sizes: when the level of all falls within seconds, a
# node whose samples are a second or two ahead is below its peers for a moment.
_HELD_STRENGTH = 3.0


class SideTracker:
    """The deviations of all nodes on one side of one metric.

    Parameters
    ----------
    gap_seconds
        As for ``DeviationTracker``.
    step_seconds
        Time between two evaluated steps.
    resolution_seconds
        Time between two samples, at most a second.
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
        self.gpu: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.held: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self.common = False

    def follow(self, nodes: tuple[str, ...]) -> None:
        """Go on with these nodes, as ``DeviationTracker.follow``."""
        known = {node: index for index, node in enumerate(self.deviations.nodes)}
        if nodes == self.deviations.nodes:
            return
        for name, blank in (
            ("since", np.nan),
            ("strength", 0.0),
            ("gpu", -1),
            ("held", False),
        ):
            old = getattr(self, name)
            setattr(self, name, np.array([old[known[n]] if n in known else blank for n in nodes]))
        self.deviations.follow(nodes)

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
        candidates = seen | self.held
        before = self.deviations.start
        self.deviations.update(step.clock, candidates, evaluated)
        begun = candidates & (self.deviations.start != before)
        self.since = np.where(begun, elapsed(self.deviations.lead_seconds, step.time), self.since)
        kept = np.where(begun, 0.0, _FORGET * self.strength)
        self.strength = np.where(seen, np.maximum(kept, found.strength), self.strength)
        self.gpu = np.where(seen, found.gpu, self.gpu)
        self.common = found.common

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """One running deviation, as evidence against its node.

    Parameters
    ----------
    node, gpu, metric, rank
        Who, and in what; ``gpu`` is empty unless one alone carries it.
    high
        Whether the node is above its peers.
    since, began
        When it began, in Unix time and on the job's clock.
    seconds, quiet, strength
        Length, seconds since it was last seen, largest recent deviation in minimum effect sizes.
    held
        Seen until the level of all collapsed, and counted on since.
    """

    node: str
    gpu: str
    metric: MetricConfig
    rank: int
    high: bool
    since: float
    began: float
    seconds: float
    quiet: float
    strength: float
    held: bool = False

    @property
    def family(self) -> str:
        """Evidence of one family has one source and counts once."""
        return "network" if self.metric.kind == "network" else self.metric.name

    @property
    def is_load(self) -> bool:
        """Whether the host merely has more to do than others, for the job or for other programs."""
        return self.high and self.metric.kind in {"load", "own"}

    @property
    def of_others(self) -> bool:
        """Whether other programs than the job's explain it."""
        return self.high and self.metric.kind == "load"

    @property
    def works_on(self) -> bool:
        """Whether the node's GPUs have more to do than those of the others."""
        return self.high and self.metric.kind == "work" and self.metric.scope == "gpu"


def collect_evidence(
    tracker: SideTracker,
    metric: MetricConfig,
    rank: int,
    gpus: tuple[str, ...],
    *,
    high: bool,
    common_cause: bool,
) -> tuple[list[Evidence], bool]:
    """Return the running deviations of a side, and whether some were left out as common.

    Parameters
    ----------
    tracker
        One side of a metric.
    metric, rank
        The metric and its place in the priority.
    gpus
        Names of the GPUs.
    high
        The side.
    common_cause
        Whether deviations that began together are left out.
    """
    running, deviations = tracker.running(), tracker.deviations
    if not len(running):
        return [], False
    alone = tracker.together() <= _MOST_TOGETHER[metric.kind]
    if not common_cause:
        alone[:] = True
    seconds = deviations.seconds()
    evidence = [
        Evidence(
            deviations.nodes[index],
            gpus[tracker.gpu[index]] if 0 <= tracker.gpu[index] < len(gpus) else "",
            metric,
            rank,
            high,
            float(tracker.since[index]),
            float(deviations.start[index]),
            float(seconds[index]),
            float(deviations.quiet[index]),
            float(tracker.strength[index]),
            bool(tracker.held[index]),
        )
        for index in running[alone]
    ]
    return evidence, not bool(alone.all())


def assess(
    evidence: list[Evidence],
    step: JobStep,
    loss: Callable[[Evidence], float],
    config: DetectorConfig,
) -> list[Deviation]:
    """Say of all evidence how long it must last.

    Parameters
    ----------
    evidence
        All running deviations of the job.
    step
        The job now.
    loss
        Share of progress that a deviation may have cost the job; NaN = not known.
    config
        Settings.

    Returns
    -------
    list[Deviation]
        One for each; those that cannot become a finding now are never sustained.
    """
    if not step.phase.known:
        needed = config.continuity.threshold_seconds
        return [_deviation(item, needed, "critical", config) for item in evidence]
    by_node: dict[str, list[Evidence]] = {}
    for item in evidence:
        by_node.setdefault(item.node, []).append(item)
    explained = any(not item.is_load for item in evidence)
    deviations = []
    for item in evidence:
        needed, severity = _needed(item, by_node[item.node], step, loss, config)
        # Whose own rank is busy while the others wait is waited for.
        ignored = item.of_others if step.phase.waiting else item.is_load and explained
        if ignored and config.peerwatch.load:
            needed = np.inf
        deviations.append(_deviation(item, needed, severity, config))
    return deviations


def _needed(
    item: Evidence,
    same_node: list[Evidence],
    step: JobStep,
    loss: Callable[[Evidence], float],
    config: DetectorConfig,
) -> tuple[float, Severity]:
    """Return the length at which it is a finding now, infinite for never, and its severity."""
    settings, threshold = config.peerwatch, config.continuity.threshold_seconds
    if step.phase.ended:
        return _needed_at_the_end(item, step, config), "critical"
    if step.phase.waiting and (step.starting or settings.fast):
        if not step.starting:
            threshold = _needed_while_waiting(item, same_node, step, config)
        return threshold, "critical"
    if item.seconds < threshold:
        return threshold, "critical"
    if step.phase.waiting:
        return np.inf, "critical"
    least = settings.load_loss if item.is_load and settings.load else settings.progress_loss
    if loss(item) >= least:
        return threshold, "critical"
    return (threshold if item.metric.warns else np.inf), "warning"


def _needed_while_waiting(
    item: Evidence, same_node: list[Evidence], step: JobStep, config: DetectorConfig
) -> float:
    settings = config.peerwatch
    late = step.waits_long(settings.patience_seconds)
    # A glitch just before a checkpoint was the first as well; then the wait is soon over.
    if (item.held and not late) or not _explains(item, step, settings, late=late):
        return np.inf
    signs = [
        other
        for other in same_node
        if _explains(other, step, settings, late=True) and not (other.is_load and settings.load)
    ]
    if settings.company:
        paired = has_company(signs, step, settings)
        if not paired and not had_time(item, step, settings):
            return np.inf
    else:
        paired = len({other.family for other in signs}) > 1
    needed = settings.fast_pair_seconds if paired else settings.fast_seconds
    return min(needed, config.continuity.threshold_seconds)


def _needed_at_the_end(item: Evidence, step: JobStep, config: DetectorConfig) -> float:
    settings = config.peerwatch
    if step.waiting_since is None or not _explains(item, step, settings, late=False):
        return np.inf
    if not settings.fast or not outlived_the_job(item, step, settings):
        return np.inf
    return min(settings.fast_pair_seconds, config.continuity.threshold_seconds)


def _explains(item: Evidence, step: JobStep, settings: PeerwatchConfig, *, late: bool) -> bool:
    """Whether a deviation may be why the job waits, by when it began; ``late`` allows for more."""
    assert step.waiting_since is not None, "a waiting job waits since some time"
    before, slack = elapsed(item.began, step.waiting_since), settings.slack_seconds
    if before > (_LATE_SLACK * slack if late else slack):
        return False
    if not item.held:
        return True
    # What a node shows where the level collapses in the midst of a wait was not the first.
    return abs(before) <= _HELD_SLACK * slack and item.strength >= _HELD_STRENGTH


def _deviation(
    item: Evidence, needed: float, severity: Severity, config: DetectorConfig
) -> Deviation:
    # Evidence that cannot flag a node now is shown as half of the way at most.
    threshold = needed
    if not np.isfinite(needed):
        threshold = max(2 * item.seconds, config.resolution_seconds)
    return Deviation(
        item.node,
        item.gpu,
        item.metric.name,
        "peerwatch",
        item.rank,
        item.since,
        item.seconds,
        threshold,
        item.strength,
        item.quiet,
        severity,
        item.high,
        item.strength,
    )
