"""Watches the traffic of one job: its level, its rhythm, and the nodes that differ in either.

RDMA counts where the job uses it, else the network. A job that pauses is nobody's fault: its
traffic is low for no longer than the pauses that it came back from, or its steps go on as usual, or
its GPUs compute or rest, as in an evaluation or a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.detection.methods.peerwatch.peers import job_median
from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic, TrafficState
from peerwatch_detector.diagnosis.traffic.level import (
    FALLEN_SHARE,
    LONGEST_PAUSE,
    STOPPED_SHARE,
    Level,
    level,
)
from peerwatch_detector.diagnosis.traffic.nodes import BLOCK_SECONDS, NodeShares
from peerwatch_detector.diagnosis.traffic.period import find_period, shortest_period
from peerwatch_detector.diagnosis.traffic.recent import Recent, carried, spacing
from peerwatch_detector.diagnosis.traffic.rhythm import Rhythm, window_seconds
from peerwatch_detector.frame import JobFrame, to_grid

# Metrics of the presets, the more direct first.
METRICS = ("tcp_rdma_throughput", "network_throughput")
# A job whose nodes send less than this (bytes per second) trains on one node each, or not at all.
# Chosen: heartbeats and logs send some kilobytes, gradients of even a small model many megabytes.
_FLOOR = 1e6
# Chosen: an hour has several checkpoints and evaluations, and what was usual before is forgotten.
_MEMORY_SECONDS = 3600.0
# A level is the mean of at least so long, four scrapes of 15 s; twice as long, some steps of a job,
# where the period is not known.
_MEAN_SECONDS, _UNKNOWN_MEAN_SECONDS = 60.0, 120.0
# From this share of its usual step rate on a job goes on, whatever it sends: PeerwatchJobSlow's.
_GOES_ON = 2 / 3
# A node is compared while the job as a whole sends about as much as usual. Chosen: just above the
# two thirds below which a job is slow.
_COMPARED_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Doing:
    """What else is known of a job.

    Parameters
    ----------
    progress_since
        Returns what it does at a time, and what it has lost since another (both Unix time);
        None = not known.
    step_rate
        Its steps against its usual ones; None = not known.
    """

    progress_since: Callable[[float, float], JobProgress] | None = None
    step_rate: JobStepRate | None = None

    def patience(self, since: float, time: float, least_seconds: float) -> float:
        """Return for how long unusual traffic has a healthy reason; infinite if it always has."""
        if self.step_rate is not None and self.step_rate.ratio >= _GOES_ON:
            return math.inf
        if self.progress_since is None:
            return least_seconds
        progress = self.progress_since(since, time)
        if progress.activity == "trains" and math.isfinite(progress.loss or math.nan):
            return math.inf
        # It computes without its network, or rests: an evaluation, a checkpoint, a halt.
        healthy = progress.activity in ("trains", "rests")
        return LONGEST_PAUSE if healthy else least_seconds


class TrafficWatch:
    """The traffic of one job, cycle after cycle.

    Parameters
    ----------
    step_seconds
        Time between two samples.
    rate_seconds
        The time that each sample is a rate over.
    patience_seconds
        Pauses up to so long are ordinary in any job.
    """

    def __init__(self, step_seconds: float, rate_seconds: float, patience_seconds: float) -> None:
        self._sources = {
            metric: _Source(metric, max(1.0, step_seconds), rate_seconds, patience_seconds)
            for metric in METRICS
        }

    def update(self, frames: Mapping[str, JobFrame], doing: Doing) -> JobTraffic | None:
        """Take in new samples and return what they show; None while too little is known.

        Parameters
        ----------
        frames
            By metric; samples that were taken in before may come again.
        doing
            What else is known of the job now.
        """
        for metric, source in self._sources.items():
            if metric in frames:
                source.take(frames[metric])
        found = (source.evaluate(doing) for source in self._sources.values())
        return next((traffic for traffic in found if traffic is not None), None)


class _Source:
    """Traffic as one metric tells it."""

    def __init__(
        self, metric: str, step_seconds: float, rate_seconds: float, patience_seconds: float
    ) -> None:
        self.metric = metric
        self._step, self._rate, self._patience = step_seconds, rate_seconds, patience_seconds
        self._begin((), rate_seconds)

    def _begin(self, nodes: tuple[str, ...], resolution_seconds: float) -> None:
        """Forget what was: the job runs on other nodes, or samples come in another rhythm."""
        self._resolution = resolution_seconds
        self._rhythm = Rhythm(resolution_seconds)
        self._job = Recent(1, _MEMORY_SECONDS, self._step)
        self._recent = Recent(len(nodes), window_seconds(resolution_seconds), self._step)
        self._nodes = NodeShares(nodes, self._rhythm.window_seconds, self._rhythm.least_strength)
        self._evaluated: int | None = None
        self._blocks: int | None = None

    def take(self, frame: JobFrame) -> None:
        """Take in samples."""
        steps, values = _on_grid(frame, self._step)
        middle = job_median(values).astype(np.float32)[None]
        resolution = max(self._rate, spacing(middle[0]) * self._step)
        rarer = resolution > 1.5 * self._resolution and np.isfinite(middle).sum() > 5
        if frame.nodes != self._nodes.nodes or rarer:
            self._begin(frame.nodes, resolution if rarer else self._resolution)
        self._recent.write(steps, values)
        self._job.write(steps, middle)

    def evaluate(self, doing: Doing) -> JobTraffic | None:
        """Return what the samples show; None while too little is known."""
        if self._job.newest is None:
            return None
        now = self._job.newest * self._step
        levels = carried(self._job.last(_MEMORY_SECONDS), self._step)[0].astype(np.float64)
        if self._evaluated != self._job.newest:
            window = levels[-round(self._rhythm.window_seconds / self._step) :]
            self._rhythm.update(now, find_period(window, self._step, self._resolution))
            self._evaluated = self._job.newest
        known = level(levels, self._step, self._mean_seconds(), _FLOOR)
        if known is None:
            return None
        self._compare(known)
        state, since = self._state(known, doing, now)
        return JobTraffic(
            self.metric,
            known.usual,
            known.ratio,
            self._rhythm.period_seconds,
            shortest_period(self._resolution),
            state,
            since,
            () if state != "usual" else self._nodes.changed(),
        )

    def _mean_seconds(self) -> float:
        """Return how long a level is the mean of: whole periods."""
        period = self._rhythm.usual_seconds or self._rhythm.period_seconds
        if period is None:
            return _UNKNOWN_MEAN_SECONDS
        return period * math.ceil(_MEAN_SECONDS / period)

    def _state(self, known: Level, doing: Doing, now: float) -> tuple[TrafficState, float]:
        """Return what is wrong with the job's traffic, and since when."""
        # A mean is low for longer than traffic is, where lulls of steps add to a pause.
        least = max(self._patience + self._mean_seconds(), known.pause_seconds)
        if known.low_seconds > 0:
            # A mean falls below half of it half of its length after the traffic did.
            since = now - known.low_seconds - self._mean_seconds() * FALLEN_SHARE
            if known.low_seconds <= doing.patience(since, now, least):
                return "usual", 0.0
            return ("stopped" if known.ratio < STOPPED_SHARE else "fallen"), since
        irregular = self._rhythm.irregular_seconds(now)
        # A pause stays in the window for as long as that is.
        if irregular > self._rhythm.window_seconds and (
            irregular > self._rhythm.window_seconds + doing.patience(now - irregular, now, least)
        ):
            # The rhythm is missed once about half of what is examined lacks it.
            return "irregular", now - irregular - self._rhythm.window_seconds / 2
        return "usual", 0.0

    def _compare(self, known: Level) -> None:
        """Compare the nodes once in a block."""
        assert self._job.newest is not None, "levels are known"
        block = int(self._job.newest * self._step // BLOCK_SECONDS)
        if block == self._blocks:
            return
        self._blocks = block
        if known.ratio < _COMPARED_SHARE:
            self._nodes.pause()
            return
        present, seconds = known.ratio * known.usual, self._mean_seconds()
        self._nodes.update(self._recent, seconds, present, self._rhythm.period_seconds)


def _on_grid(frame: JobFrame, step: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the samples on a grid of whole seconds: of several within one, their mean."""
    steps = to_grid(frame.times, step)
    if len(steps) < 2 or (np.diff(steps) > 0).all():
        return steps, frame.values
    first = np.flatnonzero(np.concatenate(([True], np.diff(steps) > 0)))
    known = np.isfinite(frame.values)
    total = np.add.reduceat(np.where(known, frame.values, 0), first, axis=1)
    count = np.add.reduceat(known.astype(np.float32), first, axis=1)
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return steps[first], mean.astype(np.float32)
