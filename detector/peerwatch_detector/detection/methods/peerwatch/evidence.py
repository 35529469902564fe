"""From candidates to deviations, and how long a deviation must last by what else is known.

A deviation counts for more while the job waits for one of its ranks, for less while the job goes on
as before. The clock of deviations stops while the job is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.config.methods import PeerwatchConfig
from peerwatch_detector.detection.findings import Deviation, Severity
from peerwatch_detector.detection.methods.peerwatch.company import (
    had_time,
    has_company,
    is_weak_alone,
    outlived_the_job,
)
from peerwatch_detector.detection.methods.peerwatch.effects import MOST_TOGETHER
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.side_tracker import SideTracker
from peerwatch_detector.detection.time_grid import elapsed

# While the job waits for long, what began so many times the slack earlier may explain it.
_LATE_SLACK = 2.0
# What tells of a wait's first moment alone must have begun within this share of the slack: what was
# seen only before the level of all collapsed, and a node that is gone.
FIRST_SHARE = 0.5
# And have been this large, in minimum effect sizes: when the level of all falls within seconds, a
# node whose samples are a second or two ahead is below its peers for a moment.
_HELD_STRENGTH = 3.0
# What a job bore while it worked explains a wait, or that it is slower, only where it is so many
# times as strong by now.
_GROWN = 1.5


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
    borne, first
        How strong the same was shortly before it began, while the job worked; 0 = it was not there.
        And since when, in Unix time, it has come and gone like that.
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
    borne: float = 0.0
    first: float = np.nan

    @property
    def family(self) -> str:
        """Evidence of one family has one source and counts once."""
        return "network" if self.metric.kind == "network" else self.metric.name

    @property
    def is_load(self) -> bool:
        """Whether the host merely has more to do than others, for the job or for other programs."""
        return self.high and self.metric.kind in {"load", "memory", "own"}

    @property
    def of_others(self) -> bool:
        """Whether other programs than the job's explain it."""
        return self.high and self.metric.kind in {"load", "memory"}

    @property
    def holds_less(self) -> bool:
        """Whether the node's processes hold less than those of others, which sets no speed.

        Every restart sets anew how much that is; a rank that dies stops the job.
        """
        return not self.high and self.metric.kind == "memory"

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
    alone = tracker.together() <= MOST_TOGETHER[metric.kind]
    alone &= ~tracker.of_many[running]
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
            float(tracker.borne[index]),
            float(tracker.first[index]),
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
        return _needed_at_the_end(item, same_node, step, config), "critical"
    if step.phase.waiting and (step.starting or settings.fast):
        if step.starting and settings.restarts and not step.waits_long(threshold):
            # The new processes load, whatever their nodes showed before.
            threshold = np.inf
        elif not step.starting:
            threshold = _needed_while_waiting(item, same_node, step, config)
        return threshold, "critical"
    if item.seconds < threshold:
        return threshold, "critical"
    if step.phase.waiting or (item.holds_less and settings.load):
        return np.inf, "critical"
    least = settings.load_loss if item.is_load and settings.load else settings.progress_loss
    if loss(item) >= least and not _borne_at_that_step_rate(item, least, loss, settings):
        weak = settings.weak and is_weak_alone(item, same_node, threshold)
        return threshold * (2 if weak else 1), "critical"
    return (threshold if item.metric.warns else np.inf), "warning"


def _borne_at_that_step_rate(
    item: Evidence, least: float, loss: Callable[[Evidence], float], settings: PeerwatchConfig
) -> bool:
    """Whether the job is no slower than when the same first showed, some time before.

    What comes and goes while the job keeps its pace is not what slows it down the next time.
    """
    if not settings.again or item.borne == 0 or item.strength >= _GROWN * item.borne:
        return False
    return not loss(replace(item, since=item.first)) >= least


def _needed_while_waiting(
    item: Evidence, same_node: list[Evidence], step: JobStep, config: DetectorConfig
) -> float:
    settings = config.peerwatch
    late = step.waits_long(settings.patience_seconds)
    # A glitch just before a checkpoint was the first as well; then the wait is soon over.
    if item.held and not late:
        return np.inf
    # What came later may be a fault of its own: it has the size and the time of one.
    if _came_later(item, step, settings) and not item.held and not item.holds_less:
        whole = item.strength * settings.relaxed >= 1
        return config.continuity.threshold_seconds if whole else np.inf
    if not _explains(item, step, settings, late=late):
        return np.inf
    signs = _signs(same_node, step, settings, late=True)
    if settings.company:
        paired = has_company(signs, step, settings)
        if not paired and not had_time(item, step, settings):
            return np.inf
    else:
        paired = len({other.family for other in signs}) > 1
    needed = settings.fast_pair_seconds if paired else settings.fast_seconds
    return min(needed, config.continuity.threshold_seconds)


def _needed_at_the_end(
    item: Evidence, same_node: list[Evidence], step: JobStep, config: DetectorConfig
) -> float:
    settings = config.peerwatch
    if step.waiting_since is None or not _explains(item, step, settings, late=False):
        return np.inf
    signs = _signs(same_node, step, settings, late=False)
    if not settings.fast or not outlived_the_job(item, signs, step, settings):
        return np.inf
    return min(settings.fast_pair_seconds, config.continuity.threshold_seconds)


def _signs(
    same_node: list[Evidence], step: JobStep, settings: PeerwatchConfig, *, late: bool
) -> list[Evidence]:
    """Return what may explain the wait and is no load; ``late`` as for ``_explains``."""
    return [
        other
        for other in same_node
        if _explains(other, step, settings, late=late) and not (other.is_load and settings.load)
    ]


def _explains(item: Evidence, step: JobStep, settings: PeerwatchConfig, *, late: bool) -> bool:
    """Whether a deviation may be why the job waits, by when it began; ``late`` allows for more."""
    assert step.waiting_since is not None, "a waiting job waits since some time"
    # A restart sets anew what every process holds: until the job works again that is no sign.
    if item.holds_less and settings.load and not step.phase.ended and step.halted_seconds > 0:
        return False
    before, slack = elapsed(item.began, step.waiting_since), settings.slack_seconds
    if before > (_LATE_SLACK * slack if late else slack):
        return False
    if _came_later(item, step, settings):
        return False
    # The job worked on with the same a moment ago. Once it waits for long, less counts as much.
    relaxed = settings.relaxed if step.waits_long(settings.patience_seconds) else 1.0
    if settings.company and item.strength * relaxed < _GROWN * item.borne:
        return False
    return not item.held or _was_first(item, before, step, settings)


def _was_first(item: Evidence, before: float, step: JobStep, settings: PeerwatchConfig) -> bool:
    """Whether what was seen until the level of all collapsed was the first of it.

    ``before`` is how long before the wait it began, in seconds.
    """
    # What a node shows where the level collapses in the midst of a wait was not.
    if abs(before) > FIRST_SHARE * settings.slack_seconds or item.strength < _HELD_STRENGTH:
        return False
    return not (settings.late_samples and _has_late_samples(item, step, settings))


def _has_late_samples(item: Evidence, step: JobStep, settings: PeerwatchConfig) -> bool:
    """Whether a node only seems to be the first to stop, as its samples come late.

    No job works without one of its nodes. Where one is not seen to come back from a pause with the
    others, and these work for some seconds until the next pause, its samples still show the first.
    """
    if step.halted_seconds > 0 and item.since > step.worked_at:
        return True
    return item.since <= step.work_began + settings.fast_pair_seconds


def _came_later(item: Evidence, step: JobStep, settings: PeerwatchConfig) -> bool:
    """Whether a deviation began so late that it cannot be why the job waits.

    Once the wait is long, weaker deviations are seen, too, as soon as the mean that is compared
    tells of them. What is seen only later was not there, or weaker, while the job waited already.
    """
    assert step.waiting_since is not None, "a waiting job waits since some time"
    seen = settings.patience_seconds + settings.level_seconds
    return settings.company and elapsed(step.waiting_since, item.began) > seen


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
