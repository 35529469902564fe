"""The steps at which no unit of a metric comes near a deviation, which are nearly all.

They are taken together as far as the same is normal at them: what would be as many turns through
one step is one. Nothing of it is decided otherwise than step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peerwatch_detector import compiled
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.effects import (
    SUSPECT,
    StepCandidates,
    floor_at,
    mean_known,
)
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.learning import learn_all
from peerwatch_detector.detection.methods.peerwatch.metric_view import Group, MetricView
from peerwatch_detector.detection.methods.peerwatch.screening import screen
from peerwatch_detector.detection.similarity import Mask


@dataclass(frozen=True, slots=True)
class CalmSteps:
    """The first of some steps at which no unit of a group may deviate; nothing is learned yet.

    Parameters
    ----------
    view, group
        Whose.
    steps
        The steps.
    usual
        What is normal at all of them.
    known
        About whom of the evaluated anything is known, shape (n_steps, n_evaluated).
    collapsed
        Of each step, whether the group's level has.
    """

    view: MetricView
    group: Group
    steps: Sequence[JobStep]
    usual: Usual | None = None
    known: Sequence[Mask] | Mask = ()
    collapsed: Sequence[bool] = ()

    def learn(self, count: int, config: DetectorConfig) -> None:
        """Learn from the first of the steps."""
        if count:
            assert self.usual is not None, "steps were screened by what is normal"
            steps = zip(self.steps[:count], self.collapsed, strict=False)
            learn_all(self.view, self.group, steps, self.usual, config)


def compare_calm(
    view: MetricView, steps: Sequence[JobStep], config: DetectorConfig
) -> dict[float, StepCandidates]:
    """Compare and learn from one metric at the first of some steps: those that are calm.

    Parameters
    ----------
    view
        The metric's samples.
    steps
        In order of time; the same is normal at all of them.
    config
        Settings.

    Returns
    -------
    dict
        By time, that there is no candidate. What this returns, and what is learned, is what
        comparing every unit gives.
    """
    calm, count = [], len(steps)
    for group in view.groups:
        found = calm_steps(view, group, steps[:count], config)
        count = len(found.steps)
        if not count:
            return {}
        calm.append(found)
    for found in calm:
        found.learn(count, config)
    times = [step.time for step in steps[:count]]
    return StepCandidates.nobody_at(times, *_known(calm, count, len(view.frame.nodes), config))


def _known(
    calm: Sequence[CalmSteps], count: int, nodes: int, config: DetectorConfig
) -> tuple[Mask, Mask]:
    """Return about whom anything is known, and whose level has collapsed, by step."""
    evaluated, unobservable = np.zeros((2, count, nodes), np.bool_)
    for found in calm:
        everyone = not found.group.role and len(found.group.evaluated) == nodes
        who = slice(None) if everyone else found.group.evaluated
        evaluated[:, who] = found.known[:count]
        if config.peerwatch.first and any(found.collapsed[:count]):
            unobservable[:, who] = np.array(found.collapsed[:count])[:, None]
    return evaluated, unobservable


def calm_steps(
    view: MetricView, group: Group, steps: Sequence[JobStep], config: DetectorConfig
) -> CalmSteps:
    """Return the first of some steps at which no unit of a group may deviate.

    Parameters
    ----------
    view, group
        The samples.
    steps, config
        As for ``compare_calm``.
    """
    scale, baseline, settings = view.scale, group.baseline, config.peerwatch
    if not steps or not scale.by_factor or not compiled.ready():
        return CalmSteps(view, group, ())
    usual = baseline.usual(steps[0].time)
    spans = [view.grid.columns(step.time, settings.level_seconds) for step in steps]
    floors = [
        floor_at(mean_known(group.middle[columns]), usual, scale, settings) for columns in spans
    ]
    # Below both, a unit is learned from and is no candidate, whatever the job does.
    limit = min(SUSPECT, settings.relaxed) * scale.min_effect_size(view.metric, usual.level)
    first = spans[0].start
    until = view.grid.until(baseline.usual_until(steps[0].time))
    window = group.corrected.window(group.units, slice(first, spans[-1].stop), until, usual)
    known = screen(
        window,
        np.array([(columns.start - first, columns.stop - first) for columns in spans]),
        np.array([floor for _, floor in floors]),
        limit,
    )
    by_gpu = known.reshape(len(known), len(group.within), len(view.gpus))
    by_node: Mask = by_gpu[:, :, 0] if len(view.gpus) == 1 else np.asarray(by_gpu.any(axis=2))
    if not group.within.all():
        by_node = by_node[:, group.within]
    collapsed = [collapsed for collapsed, _ in floors[: len(known)]]
    return CalmSteps(view, group, steps[: len(known)], usual, by_node, collapsed)
