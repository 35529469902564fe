"""Method ``minder``: the algorithm of the paper (NSDI'25, section 4), window by window.

Every window of every metric has at most one candidate, the node with the highest normal score if
that is over the threshold. A node that stays the candidate for the continuity threshold is flagged,
by the first metric in the priority that has such a node; the metrics after it do not count then.

The paper calls its detection every eight minutes on the last fifteen; here each window is evaluated
once, when it comes. The nearest sample stands for a missing one, yet never one from after the
window, so that a window looks the same whenever it is evaluated. The paper compares machines, so a
metric of GPUs is their mean.

Windows that cannot matter are passed over (``windows``): they belong to no deviation that is long
enough or still runs, and while a finding stands they are compared to see whether its node is quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from peerwatch_detector.config import DetectorConfig, MetricConfig
from peerwatch_detector.detection.findings import Deviation, Finding, still_standing
from peerwatch_detector.detection.gpu_attribution import deviating_gpu
from peerwatch_detector.detection.methods.base import Method, MetricScores, ranked
from peerwatch_detector.detection.methods.minder.joined import join
from peerwatch_detector.detection.methods.minder.tracking import MetricMemory, MetricTracking
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.detection.time_grid import elapsed
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import INTEGRATED, Model


class MinderMethod(Method):
    """One job by method ``minder``; see ``Method``."""

    def __init__(
        self, config: DetectorConfig, models: Mapping[str, Model], state: JobState
    ) -> None:
        self.metrics: dict[str, MetricMemory] = {}
        self._config, self._models, self._state = config, models, state
        self._priority = config.detection_metrics()
        continuity = config.continuity.threshold_seconds
        self._needed = continuity if config.minder.continuity else 0.0
        self._per_metric = config.minder.join == "per_metric"

    def detect(
        self, job: Job, frames: Mapping[str, JobFrame], absent: list[Deviation], now: float
    ) -> list[Deviation]:
        """Evaluate all new windows."""
        config = self._config
        threads = worthwhile(config.scheduling.detection_threads, frames.values())
        parts = self._begin(frames, threads)
        if self._per_metric:
            each(
                lambda part: part.candidates.find_deviations(self._needed, part.running_since),
                parts,
                threads,
            )
        else:
            join(parts, self._models.get(INTEGRATED), config)
        each(lambda part: part.keep_newest(config), parts, threads)
        for time in sorted({float(end) for part in parts for end in part.candidates.ends}):
            if not self._state.standing and all(part.candidate(time) < 0 for part in parts):
                # Nobody can be flagged, and nothing can fall.
                continue
            for part in parts:
                part.update(time)
            self._clear(job, parts, time)
            if len(job.nodes) >= config.min_nodes:
                self._raise(job.job_id, parts, time, now)
        for part in parts:
            part.finish()
            for node in self._state.standing:
                part.correct_quiet(node, config.continuity.clear_seconds)
        running = [self._deviations(part) for part in self._counted(parts)]
        return [*absent, *(deviation for part in running for deviation in part)]

    def quiet_seconds(self, node: str) -> float | None:
        """Return 0 for a node that is known: its findings fall window by window, not later."""
        known = any(node in memory.tracker.nodes for memory in self.metrics.values())
        return 0.0 if known else None

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

    def _begin(self, frames: Mapping[str, JobFrame], threads: int) -> list[MetricTracking]:
        """Cut the new windows of every metric."""
        found = ranked(self._priority, frames)
        for _, metric in found:
            memory = self.metrics.setdefault(metric.name, MetricMemory.empty(self._config))
            memory.follow(frames[metric.name].nodes)

        def begin(place: tuple[int, MetricConfig]) -> MetricTracking:
            rank, metric = place
            name = metric.name
            memory, model = self.metrics[name], self._models[name]
            return MetricTracking.of(rank, metric, frames[name], memory, model, self._config)

        return each(begin, found, threads)

    def _counted(self, parts: list[MetricTracking]) -> list[MetricTracking]:
        """Return the metrics that count; joined they all say the same."""
        return parts if self._per_metric else parts[:1]

    def _clear(self, job: Job, parts: list[MetricTracking], time: float) -> None:
        """Let findings fall whose nodes have not been candidates for long enough."""
        state, enough = self._state, self._config.continuity.clear_seconds
        quiet: dict[str, float] = {}
        for node in state.standing.keys() - (state.last_absent.keys() | job.absent_since.keys()):
            # What was quiet before a fault began says nothing about its end.
            lasts = elapsed(state.standing[node].since, time)
            seconds = min(self._quiet(node), lasts)
            if seconds >= enough:
                for part in parts:
                    part.correct_quiet(node, enough)
                seconds = min(self._quiet(node), lasts)
            quiet[node] = seconds
        state.standing = still_standing(state.standing, quiet, enough)

    def _quiet(self, node: str) -> float:
        """Return for how long no metric had a node as candidate, as far as was compared."""
        quiet = [memory.tracker.quiet_seconds(node) for memory in self.metrics.values()]
        return min((seconds for seconds in quiet if seconds is not None), default=0.0)

    def _raise(self, job_id: str, parts: list[MetricTracking], time: float, now: float) -> None:
        """Flag the node of the first metric in the priority that has one."""
        for part in self._counted(parts):
            row, tracker, index = part.row(time), part.memory.tracker, part.candidate(time)
            if row is None or index < 0:
                continue
            if not elapsed(tracker.start[index], time) >= self._needed:
                continue
            node = part.frame.nodes[index]
            if node not in self._state.standing:
                shown = part if self._per_metric else _showing(parts, time, index)
                self._state.standing[node] = Finding(
                    job_id,
                    node,
                    deviating_gpu(shown.frame, index, shown.metric),
                    shown.metric.name,
                    "minder",
                    "critical",
                    shown.rank,
                    float(tracker.start[index]),
                    now,
                    part.candidates.score(row),
                )
            return

    def _deviations(self, part: MetricTracking) -> list[Deviation]:
        tracker, peak = part.memory.tracker, part.memory.peak
        lengths = tracker.seconds()
        return [
            Deviation(
                tracker.nodes[index],
                deviating_gpu(part.frame, int(index), part.metric),
                part.metric.name,
                "minder",
                part.rank,
                float(tracker.start[index]),
                float(lengths[index]),
                self._needed or self._config.resolution_seconds,
                float(np.nan_to_num(peak[index])),
                float(tracker.quiet[index]),
            )
            for index in np.flatnonzero(np.isfinite(tracker.start))
        ]


def _showing(parts: list[MetricTracking], time: float, node: int) -> MetricTracking:
    """Return the metric in which a node flagged by all of them together stands out most."""
    own = [
        float(part.windows.scores(int(np.searchsorted(part.windows.ends, time)))[node])
        for part in parts
    ]
    return parts[int(np.argmax(np.nan_to_num(own, nan=-np.inf)))]
