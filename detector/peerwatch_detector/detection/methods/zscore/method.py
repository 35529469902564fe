"""Method ``zscore``: the outlier rule of Aegis (NSDI'25), metric by metric.

A node beyond mean + 2 standard deviations of its job for ten minutes is a finding. It knows nothing
of the job, so its findings are warnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.continuity import LONGEST_HOLE, DeviationTracker
from peerwatch_detector.detection.findings import Deviation, raise_findings
from peerwatch_detector.detection.gpu_attribution import deviating_gpu
from peerwatch_detector.detection.methods.base import Method, MetricScores, ranked
from peerwatch_detector.detection.scores import NodeScores, score_windows
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.detection.zscores import outliers
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model


@dataclass(slots=True)
class _Memory:
    """What one metric remembers between cycles."""

    tracker: DeviationTracker
    scores: NodeScores = field(default_factory=NodeScores)
    evaluated_until: float = 0.0


class ZscoreMethod(Method):
    """One job by method ``zscore``; see ``Method``."""

    def __init__(
        self, config: DetectorConfig, models: Mapping[str, Model], state: JobState
    ) -> None:
        self.metrics: dict[str, _Memory] = {}
        self._config, self._models, self._state = config, models, state
        self._priority = config.detection_metrics()

    def detect(
        self, job: Job, frames: Mapping[str, JobFrame], absent: list[Deviation], now: float
    ) -> list[Deviation]:
        """Take in the new windows of every metric."""
        found = ranked(self._priority, frames)
        for _, metric in found:
            memory = self.metrics.setdefault(metric.name, self._blank())
            memory.tracker.follow(frames[metric.name].nodes)
            memory.scores.follow(frames[metric.name].nodes)
        threads = worthwhile(self._config.scheduling.detection_threads, frames.values())
        each(lambda place: self._update(frames[place[1].name], place[1]), found, threads)
        running = [self._deviations(rank, metric, frames[metric.name]) for rank, metric in found]
        return [*absent, *(deviation for part in running for deviation in part)]

    def raise_findings(self, job: Job, deviations: list[Deviation], now: float) -> None:
        """Raise what lasts, in metric priority."""
        ready = deviations if len(job.nodes) >= self._config.min_nodes else []
        resolution = self._config.resolution_seconds
        new = raise_findings(job.job_id, now, self._state.standing, ready, resolution)
        self._state.add(new, now, resolution)

    def quiet_seconds(self, node: str) -> float | None:
        """Return the shortest time over all metrics."""
        quiet = [memory.tracker.quiet_seconds(node) for memory in self.metrics.values()]
        return min((seconds for seconds in quiet if seconds is not None), default=None)

    def scores(self, metrics: Iterable[str]) -> dict[str, MetricScores]:
        """Return the newest window's scores."""
        shown = {name: self.metrics[name] for name in metrics}
        return {
            name: MetricScores.of(memory.scores, memory.tracker.seconds())
            for name, memory in shown.items()
        }

    def needed_from(self) -> dict[str, float]:
        """Return the end of the last window of every metric."""
        return {name: memory.evaluated_until for name, memory in self.metrics.items()}

    def _blank(self) -> _Memory:
        config = self._config
        hole = LONGEST_HOLE * config.resolution_seconds
        gap = config.continuity.gap_seconds
        return _Memory(DeviationTracker(gap, config.step_seconds, hole_seconds=hole))

    def _update(self, frame: JobFrame, metric: MetricConfig) -> None:
        memory, model = self.metrics[metric.name], self._models[metric.name]
        windows = score_windows(frame, metric, model, self._config, memory.evaluated_until)
        if windows is None:
            return
        threshold = self._config.zscore.threshold
        outlying = outliers(windows.zscores, threshold, metric.direction)
        for row, end in enumerate(windows.ends):
            memory.tracker.update(float(end), outlying[row], windows.present[row])
        memory.evaluated_until = float(windows.ends[-1])
        memory.scores.take(windows)

    def _deviations(self, rank: int, metric: MetricConfig, frame: JobFrame) -> list[Deviation]:
        memory = self.metrics[metric.name]
        tracker, lengths = memory.tracker, memory.tracker.seconds()
        return [
            Deviation(
                tracker.nodes[index],
                deviating_gpu(frame, int(index), metric),
                metric.name,
                "zscore",
                rank,
                float(tracker.start[index]),
                float(lengths[index]),
                self._config.zscore.period_seconds,
                float(np.nan_to_num(abs(memory.scores.zscores[index]))),
                float(tracker.quiet[index]),
                "warning",
            )
            for index in np.flatnonzero(np.isfinite(tracker.start))
        ]
