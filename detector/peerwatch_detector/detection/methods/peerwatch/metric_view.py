"""One metric's samples of a cycle as they are evaluated: by unit, and by who is whose peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.methods.peerwatch.baseline import Baseline
from peerwatch_detector.detection.methods.peerwatch.levels import Scale
from peerwatch_detector.detection.methods.peerwatch.memory import MetricMemory
from peerwatch_detector.detection.methods.peerwatch.peers import Levels, job_median
from peerwatch_detector.detection.methods.peerwatch.screening import Corrected
from peerwatch_detector.detection.time_grid import TimeGrid
from peerwatch_detector.frame import JobFrame

Units = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are compared among themselves.

    Parameters
    ----------
    evaluated
        Indices of the nodes that are evaluated here, in the order of the frame.
    within
        Which of the group's nodes those are, shape (n_group_nodes,).
    units
        Shape (n_group_units, n_steps): the group's nodes, or GPUs of nodes.
    middle
        Their median, shape (n_steps,).
    newest
        Where the newest median is that is known by each step, -1 = nowhere, shape (n_steps,).
    baseline
        Their past.
    role
        What they do in the job; empty = all nodes.
    corrected
        What the steps that are compared at present share.
    """

    evaluated: NDArray[np.intp]
    within: NDArray[np.bool_]
    units: Units
    middle: Levels
    newest: NDArray[np.intp]
    baseline: Baseline
    role: str = ""
    corrected: Corrected = field(default_factory=Corrected)


@dataclass(frozen=True, slots=True)
class MetricView:
    """One metric's samples of a cycle, ready to be cut into steps.

    Parameters
    ----------
    metric, rank
        The metric and its place in the priority.
    frame
        The samples.
    gpus
        Names of the GPUs; one empty name for a metric per node.
    middle
        The job's median, shape (n_steps,).
    groups
        Who is compared with whom; every node is evaluated in one of them.
    memory
        What is remembered of the metric.
    scale
        How levels are compared.
    grid
        The times of the samples.
    """

    metric: MetricConfig
    rank: int
    frame: JobFrame
    gpus: tuple[str, ...]
    middle: Levels
    groups: tuple[Group, ...]
    memory: MetricMemory
    scale: Scale
    grid: TimeGrid


def metric_view(
    frame: JobFrame,
    metric: MetricConfig,
    rank: int,
    config: DetectorConfig,
    memory: MetricMemory,
    roles: Mapping[str, tuple[str, ...]],
) -> MetricView:
    """Prepare one metric's samples.

    Parameters
    ----------
    frame, metric, rank
        The samples, their metric and its place in the priority.
    config
        Settings.
    memory
        What is remembered; it follows the frame's nodes and the roles already.
    roles
        By role, its nodes; those of no role here are compared with all.
    """
    units = frame.values
    gpus: tuple[str, ...] = ("",)
    if config.peerwatch.per_gpu and frame.gpu_values is not None and len(frame.gpus):
        units = frame.gpu_values.reshape(-1, frame.gpu_values.shape[-1])
        gpus = frame.gpus
    middle = job_median(units)
    scale = Scale(metric.level_floor, config.peerwatch.scale == "factor")
    groups = []
    alone = np.ones(len(frame.nodes), dtype=bool)
    for role, nodes in roles.items():
        rows = np.array([frame.nodes.index(node) for node in nodes])
        alone[rows] = False
        part = units.reshape(len(frame.nodes), len(gpus), -1)[rows].reshape(-1, units.shape[-1])
        everyone = np.ones(len(rows), dtype=bool)
        level = job_median(part)
        past = memory.roles[role]
        groups.append(Group(rows, everyone, part, level, _newest(level), past, role))
    if alone.any():
        rows, newest = np.flatnonzero(alone), _newest(middle)
        groups.append(Group(rows, alone, units, middle, newest, memory.baseline))
    grid = TimeGrid.of(frame.times, config.step_seconds)
    return MetricView(metric, rank, frame, gpus, middle, tuple(groups), memory, scale, grid)


def _newest(middle: Levels) -> NDArray[np.intp]:
    known = np.where(np.isfinite(middle), np.arange(len(middle)), -1)
    return np.maximum.accumulate(known)
