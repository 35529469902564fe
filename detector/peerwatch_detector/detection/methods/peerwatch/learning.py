"""What is learned at a step of how the units of one metric usually differ."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Usual
from peerwatch_detector.detection.methods.peerwatch.job_step import JobStep
from peerwatch_detector.detection.methods.peerwatch.metric_view import Group, MetricView
from peerwatch_detector.detection.similarity import Mask

# A sample may come so many samples late, of a second at most, and still be learned from: two steps.
_LATEST = 10


def learn(
    view: MetricView,
    group: Group,
    step: JobStep,
    healthy: Mask,
    usual: Usual,
    config: DetectorConfig,
) -> None:
    """Add the newest sample that is not learned yet to the past; it may have come late.

    Parameters
    ----------
    view, group, step
        Whose, and when.
    healthy
        Units that may be learned from, shape (n_units,).
    usual
        What is normal at the step.
    config
        Settings.
    """
    column = _take_newest(view, group, step, config)
    if column is None:
        return
    level = float(group.middle[column])
    offset = view.scale.offset(group.units[:, column].copy(), level)
    if _is_collapsed(level, usual, config):
        healthy = np.zeros_like(healthy)
    group.baseline.learn(step.time, _learned(level, step), offset, healthy)


def learn_all(
    view: MetricView,
    group: Group,
    steps: Iterable[tuple[JobStep, bool]],
    usual: Usual,
    config: DetectorConfig,
) -> None:
    """Do the same for steps of one period at which all units are healthy, compared by factors.

    Parameters
    ----------
    view, group
        Whose.
    steps
        Each with whether the level has collapsed, which nothing but the level is learned from.
    usual
        What is normal at all of them.
    config
        Settings.
    """
    times, levels, columns, middles = [], [], [], []
    for step, collapsed in steps:
        column = _take_newest(view, group, step, config)
        if column is None:
            continue
        level = float(group.middle[column])
        if collapsed or _is_collapsed(level, usual, config):
            group.baseline.learn_level(step.time, _learned(level, step))
            continue
        times.append(step.time)
        levels.append(_learned(level, step))
        columns.append(column)
        middles.append(level)
    if columns:
        samples = group.corrected.rows(group.units, columns)
        offsets = view.scale.offsets(samples, np.array(middles))
        group.baseline.learn_all(times, levels, offsets)


def _take_newest(
    view: MetricView, group: Group, step: JobStep, config: DetectorConfig
) -> int | None:
    """Return which sample is learned at a step, None for none; no sample is learned twice."""
    columns = view.grid.columns(step.time, _LATEST * config.resolution_seconds)
    if columns.stop <= columns.start:
        return None
    column = int(group.newest[columns.stop - 1])
    if column < columns.start or view.frame.times[column] <= group.baseline.learned_until:
        return None
    group.baseline.learned_until = float(view.frame.times[column])
    return column


def _is_collapsed(level: float, usual: Usual, config: DetectorConfig) -> bool:
    return level < config.peerwatch.collapsed_share * usual.level


def _learned(level: float, step: JobStep) -> float:
    # What all show in a wait is not their usual level: after minutes of it the level would not
    # count as collapsed any more, and what little is left would be compared.
    return np.nan if step.phase.waiting else level
