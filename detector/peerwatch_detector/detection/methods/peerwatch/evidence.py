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
from peerwatch_detector.detection.continuity import DeviationTracker
from peerwatch_detector.detection.findings import Deviation, Severity
from peerwatch_detector.detection.methods.peerwatch.baseline import STEP
from peerwatch_detector.detection.methods.peerwatch.deviation import Side
from peerwatch_detector.detection.methods.peerwatch.progress import Phase
from peerwatch_detector.detection.similarity import Mask

# Deviations of one metric that began within so many seconds of each other began together.
_TOGETHER_SECONDS = 60.0
# More nodes than this that began together have a common cause; congestion spreads to two.
_MOST_TOGETHER = {"work": 2, "load": 2, "network": 1}
# A deviation's strength is its largest deviation, forgotten at this rate per step.
_FORGET = 0.9
# While the job waits for long, what began this much earlier may explain it.
_LATE_SLACK = 2.0
# What was seen only before the level of all collapsed must have begun this close to that.
_HELD_SLACK = 0.5
# And have been this large, in minimum effect sizes: when the level of all falls within seconds, a
# node whose samples are a second or two ahead is below its peers for a moment.
_HELD_STRENGTH = 3.0


@dataclass(frozen=True, slots=True)
class Moment:
    """The present of a job.

    Parameters
    ----------
    time
        Unix time.
    clock
        The same without the time in which the job was idle.
    phase
        What the job does.
    waiting_since
        On the clock; None while it does not wait.
    starting
        Whether it was halted for long and has made no progress since.
    """

    time: int
    clock: float
    phase: Phase
    waiting_since: float | None = None
    starting: bool = False

    def waits_long(self, patience_seconds: float) -> bool:
        """Whether the job has waited longer than healthy reasons explain."""
        return self.waiting_since is not None and (
            self.clock - self.waiting_since >= patience_seconds
        )


class Trail:
    """The deviations of all nodes on one side of one metric.

    Parameters
    ----------
    gap_seconds
        As for ``DeviationTracker``.
    """

    def __init__(self, gap_seconds: float) -> None:
        self.deviations = DeviationTracker(gap_seconds, STEP, STEP)
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
        self, moment: Moment, found: Side, evaluated: Mask, blind: Mask | None = None
    ) -> None:
        """Take in the candidates of one step.

        Parameters
        ----------
        moment
            The present.
        found
            The candidates.
        evaluated, blind
            Shape (n_nodes,): about whom anything is known, and whose peers' level has collapsed.
            What a node showed until then is held: it was the first. None = nobody's has.
        """
        seen = evaluated & (found.strength >= 1)
        blind = np.zeros_like(seen) if blind is None else blind
        # When the levels are back, what was held has explained nothing.
        self.deviations.start = np.where(self.held & ~blind, np.nan, self.deviations.start)
        self.held = np.isfinite(self.deviations.start) & ~seen & blind
        candidates = seen | self.held
        before = self.deviations.start
        self.deviations.update(moment.clock, candidates, evaluated)
        begun = candidates & (self.deviations.start != before)
        self.since = np.where(begun, moment.time - STEP, self.since)
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
        above = np.searchsorted(ordered, start + _TOGETHER_SECONDS, side="right")
        below = np.searchsorted(ordered, start - _TOGETHER_SECONDS, side="left")
        return (above - below).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Sign:
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
        """Signs of one family have one source and count once."""
        return "network" if self.metric.kind == "network" else self.metric.name

    @property
    def is_load(self) -> bool:
        """Whether other programs than the job explain it."""
        return self.high and self.metric.kind == "load"


def collect_signs(
    trail: Trail,
    metric: MetricConfig,
    rank: int,
    gpus: tuple[str, ...],
    *,
    high: bool,
    common_cause: bool,
) -> tuple[list[Sign], bool]:
    """Return the running deviations of a trail, and whether some were left out as common.

    Parameters
    ----------
    trail
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
    running, deviations = trail.running(), trail.deviations
    if not len(running):
        return [], False
    alone = trail.together() <= _MOST_TOGETHER[metric.kind]
    if not common_cause:
        alone[:] = True
    seconds = deviations.seconds()
    signs = [
        Sign(
            deviations.nodes[index],
            gpus[trail.gpu[index]] if 0 <= trail.gpu[index] < len(gpus) else "",
            metric,
            rank,
            high,
            float(trail.since[index]),
            float(deviations.start[index]),
            float(seconds[index]),
            float(deviations.quiet[index]),
            float(trail.strength[index]),
            bool(trail.held[index]),
        )
        for index in running[alone]
    ]
    return signs, not bool(alone.all())


def weigh(
    signs: list[Sign],
    moment: Moment,
    loss: Callable[[float], float],
    config: DetectorConfig,
) -> list[Deviation]:
    """Say of every sign how long it must last.

    Parameters
    ----------
    signs
        All running deviations of the job.
    moment
        The present.
    loss
        Share of progress lost since a Unix time; NaN = not known.
    config
        Settings.

    Returns
    -------
    list[Deviation]
        One per sign; those that cannot become a finding now are never ripe.
    """
    if not moment.phase.known:
        needed = config.continuity.threshold_seconds
        return [_deviation(sign, needed, "critical") for sign in signs]
    by_node: dict[str, list[Sign]] = {}
    for sign in signs:
        by_node.setdefault(sign.node, []).append(sign)
    explained = any(not sign.is_load for sign in signs)
    found = []
    for sign in signs:
        needed, severity = _needed(sign, by_node[sign.node], moment, loss, config)
        if sign.is_load and config.peerwatch.load and (explained or moment.phase.waiting):
            needed = np.inf
        found.append(_deviation(sign, needed, severity))
    return found


def _needed(
    sign: Sign,
    same_node: list[Sign],
    moment: Moment,
    loss: Callable[[float], float],
    config: DetectorConfig,
) -> tuple[float, Severity]:
    """Return the length at which a sign is a finding now, infinite for never, and its severity."""
    settings, threshold = config.peerwatch, config.continuity.threshold_seconds
    if moment.phase.waiting and moment.starting:
        return threshold, "critical"
    if moment.phase.waiting and settings.fast:
        return _needed_while_waiting(sign, same_node, moment, config), "critical"
    if sign.seconds < threshold:
        return threshold, "critical"
    if moment.phase.waiting:
        return np.inf, "critical"
    least = settings.load_loss if sign.is_load and settings.load else settings.progress_loss
    if loss(sign.since) >= least:
        return threshold, "critical"
    return (threshold if sign.metric.warns else np.inf), "warning"


def _needed_while_waiting(
    sign: Sign, same_node: list[Sign], moment: Moment, config: DetectorConfig
) -> float:
    settings, since = config.peerwatch, moment.waiting_since
    assert since is not None, "a waiting job waits since some time"
    slack = settings.slack_seconds
    late = moment.waits_long(settings.patience_seconds)
    if sign.began < since - (_LATE_SLACK * slack if late else slack):
        return np.inf
    # A glitch just before a checkpoint was the first as well; then the wait is soon over.
    if sign.held and (
        not late or sign.began < since - _HELD_SLACK * slack or sign.strength < _HELD_STRENGTH
    ):
        return np.inf
    families = {
        one.family
        for one in same_node
        if one.began >= since - _LATE_SLACK * slack and not (one.is_load and settings.load)
    }
    needed = settings.fast_pair_seconds if len(families) > 1 else settings.fast_seconds
    return min(needed, config.continuity.threshold_seconds)


def _deviation(sign: Sign, needed: float, severity: Severity) -> Deviation:
    # Evidence that cannot name now is shown as half of the way at most.
    threshold = needed if np.isfinite(needed) else max(2 * sign.seconds, 1.0)
    return Deviation(
        sign.node,
        sign.gpu,
        sign.metric.name,
        "peerwatch",
        sign.rank,
        sign.since,
        sign.seconds,
        threshold,
        sign.strength,
        sign.quiet,
        severity,
        sign.high,
    )
