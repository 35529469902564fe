"""What a training job is expected to show second by second, on every metric."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from peerwatch_demo.job.timeline import Phase, Stretch, Timeline

Array = NDArray[np.float64]

# What falls when the job slows down, and rises and falls with its iterations.
FOLLOWS_SPEED = frozenset(
    {
        "gpu_power",
        "gpu_tensor_activity",
        "gpu_graphics_activity",
        "nvlink_bandwidth",
        "pcie_bandwidth",
        "rdma",
        "pfc_tx_rate",
        "ecn_rate",
    }
)


@dataclass(slots=True)
class Workload:
    """One job: how many nodes, what it does when, and the level of every metric by phase.

    Parameters
    ----------
    nodes, seconds
        Size of the job and length of what is simulated.
    levels
        By metric, the level in each ``Phase``.
    rhythm
        Shape (seconds,): share of full activity in that second; one second holds an odd number of
        iterations, so samples differ though the work does not.
    timeline
        What the job does when.
    stages
        Shape (nodes,): which stage of the job every node works for.
    follows_speed
        The metrics that a job at half the speed shows half of.
    """

    nodes: int
    seconds: int
    levels: dict[str, tuple[float, ...]]
    rhythm: Array
    timeline: Timeline = field(default_factory=Timeline)
    stages: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    follows_speed: frozenset[str] = FOLLOWS_SPEED

    @property
    def phases(self) -> NDArray[np.int64]:
        """What the job does in every second, shape (seconds,)."""
        phases = np.full(self.seconds, Phase.TRAIN, dtype=np.int64)
        for stretch in self.timeline.phases:
            phases[self._span(stretch)] = stretch.phase
        return phases

    @property
    def speeds(self) -> Array:
        """Its speed in every second as a share of the usual one, shape (seconds,)."""
        speeds = np.ones(self.seconds)
        for stretch in self.timeline.speeds:
            speeds[self._span(stretch)] = stretch.speed
        return speeds

    def expected(self, metric: str) -> Array:
        """Return the level of a metric that follows the job's phases, shape (seconds,)."""
        phases = self.phases
        level = np.asarray(self.levels[metric])[phases]
        if metric in self.follows_speed:
            active = np.where(phases == Phase.TRAIN, self.rhythm * self.speeds, 1.0)
            idle = self.levels[metric][Phase.WAIT] if metric == "gpu_power" else 0.0
            level = idle + (level - idle) * active
        return level

    def _span(self, stretch: Stretch) -> slice:
        return slice(int(stretch.begin), int(min(stretch.end, self.seconds)))
