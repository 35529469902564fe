"""The stages of a cycle of one training job between reading and publishing (``pipeline``).

Everything here is a function of arrays and of what is remembered of the job; host, network and
clock stay outside. What is decided at a step depends on samples up to that step only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.checks.absent import absent_deviations
from peerwatch_detector.detection.explanation.explain import Explanation, JobProgress
from peerwatch_detector.detection.explanation.record import explain_all
from peerwatch_detector.detection.findings import (
    Deviation,
    Finding,
    fault_scores,
    still_standing,
)
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.detection.methods import create_method
from peerwatch_detector.detection.preprocess import preprocess
from peerwatch_detector.detection.state import JobState
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job
from peerwatch_detector.models.base import Model


@dataclass(frozen=True, slots=True)
class Detection:
    """What a cycle says about one job.

    Parameters
    ----------
    job
        The job and its nodes.
    time
        Unix time up to which samples were evaluated.
    comparable
        False with too few nodes, or while too many of them deviate at once in some metric, which is
        left out then.
    findings, deviations, fault_scores
        See ``findings``.
    normal_scores, zscores, continuity
        Per metric, per node, the newest values; NaN where the node could not be evaluated.
    coverage
        Per metric, the share of the nodes with a sample in the newest window.
    explanations
        Of every finding.
    not_compared
        Why ``comparable`` is false, such as "2 nodes, needs 3"; empty where it is true.
    step_rate
        How fast the job finishes its steps, compared with itself; None = not known.
    progress
        What the job does by the newest samples.
    """

    job: Job
    time: float
    comparable: bool
    findings: tuple[Finding, ...]
    deviations: tuple[Deviation, ...]
    fault_scores: dict[str, float]
    normal_scores: dict[str, Mapping[str, float]]
    zscores: dict[str, Mapping[str, float]]
    continuity: dict[str, Mapping[str, float]]
    coverage: dict[str, float]
    explanations: dict[Finding, Explanation] = field(default_factory=dict)
    not_compared: str = ""
    step_rate: JobStepRate | None = None
    progress: JobProgress = field(default_factory=lambda: JobProgress("unknown"))

    @classmethod
    def none(cls, job: Job, time: float, reason: str) -> Detection:
        """Return what is known of a job that has not been compared, and why it has not."""
        scores = dict.fromkeys(job.nodes, 0.0)
        return cls(
            job,
            time,
            comparable=False,
            findings=(),
            deviations=(),
            fault_scores=scores,
            normal_scores={},
            zscores={},
            continuity={},
            coverage={},
            not_compared=reason,
        )


@dataclass(frozen=True, slots=True)
class Detected:
    """What the stage of detection hands on.

    Parameters
    ----------
    time
        Unix time of the newest sample.
    deviations
        Those that run at the end, the absent nodes' first.
    inherited
        Findings that stood before this process evaluated the job, and were never explained by it.
    metrics
        Names of the compared metrics that have samples.
    """

    time: float
    deviations: list[Deviation]
    inherited: set[Finding]
    metrics: list[str]


class JobDetector:
    """Detects faulty nodes of one job, cycle after cycle, by the configured method.

    Parameters
    ----------
    config
        Settings.
    models
        By metric.
    """

    def __init__(self, config: DetectorConfig, models: Mapping[str, Model]) -> None:
        self.config = config
        self.state = JobState()
        # Put together once: that takes as long as comparing some metrics of a small job.
        self._read = config.read_metrics()
        self._compared = {metric.name for metric in config.detection_metrics()}
        self.method = create_method(config, models, self.state)

    def preprocess(self, frames: Mapping[str, JobFrame]) -> dict[str, JobFrame]:
        """Return samples as they were read, by metric, as they are compared."""
        return preprocess(frames, self._read, self.config)

    def detect(self, job: Job, frames: Mapping[str, JobFrame], now: float) -> Detected:
        """Compare the job's nodes on the samples that came since the last cycle.

        Parameters
        ----------
        job
            As discovered.
        frames
            By metric, preprocessed; each begins early enough for the first new window to be whole.
        now
            Unix time, for absence and for the findings' ``raised``.
        """
        inherited = set(self.state.standing.values()) - self.state.explanations.keys()
        absent = absent_deviations(job, now, self.config) if self.method.counts_absent else []
        deviations = self.method.detect(job, frames, absent, now)
        self._clear(job, now)
        self.method.raise_findings(job, deviations, now)
        newest = max((float(frame.times[-1]) for frame in frames.values()), default=now)
        metrics = [name for name in frames if name in self._compared]
        return Detected(newest, deviations, inherited, metrics)

    def explain(self, job: Job, frames: Mapping[str, JobFrame], detected: Detected) -> None:
        """Explain what was raised at the end, and what stood before this process began.

        Parameters
        ----------
        job, frames
            As for ``detect``.
        detected
            What it returned.
        """
        state = self.state
        standing = set(state.standing.values())
        evidence = {each for node, each in state.evidence.items() if node in job.nodes}
        explain = partial(
            explain_all,
            time=detected.time,
            deviations=detected.deviations,
            frames=frames,
            config=self.config,
            peers_of=partial(self.method.peers_of, job=job),
            progress_since=partial(self.method.progress_since, time=detected.time),
        )
        known = state.explanations
        known |= explain(standing - known.keys() - detected.inherited)
        known |= explain(standing & detected.inherited, before_restart=True)
        # Evidence comes first and the metrics later: what they add is measured until it is there.
        bare = {each for each in evidence if each not in known or not known[each].metrics}
        known |= explain(bare)
        kept = standing | evidence
        state.explanations = {each: why for each, why in known.items() if each in kept}

    def detection(self, job: Job, detected: Detected) -> Detection:
        """Return what the cycle says about the job, with what was explained."""
        shown = self.method.scores(detected.metrics) if self.method.shows_scores else {}
        not_compared = self._why_not_compared(job)
        return Detection(
            job=job,
            time=detected.time,
            comparable=not not_compared,
            findings=tuple(self.state.standing.values()),
            deviations=tuple(detected.deviations),
            fault_scores=fault_scores(job.nodes, self.state.standing, detected.deviations),
            normal_scores={name: scores.normal for name, scores in shown.items()},
            zscores={name: scores.zscores for name, scores in shown.items()},
            continuity={name: scores.continuity for name, scores in shown.items()},
            coverage={name: scores.coverage for name, scores in shown.items()},
            explanations=dict(self.state.explanations),
            not_compared=not_compared,
            step_rate=self.method.step_rate(),
            progress=self.method.progress_since(detected.time, detected.time),
        )

    def _clear(self, job: Job, now: float) -> None:
        """Let findings fall whose nodes have been quiet for long enough."""
        state = self.state
        state.last_absent |= dict.fromkeys(job.absent_since, now)
        quiet: dict[str, float] = {}
        # An absent node tells nothing about itself, so what was found stands.
        for node in state.standing.keys() - job.absent_since.keys() - self._later(now):
            # A node that is back was not quiet before.
            times = [now - state.last_absent[node]] if node in state.last_absent else []
            seconds = self.method.quiet_seconds(node)
            times += [] if seconds is None else [seconds]
            # One that left the job is nobody's fault any more.
            if times or node not in job.nodes:
                quiet[node] = min(times, default=np.inf)
        clear_seconds = self.config.continuity.clear_seconds
        state.standing = still_standing(state.standing, quiet, clear_seconds)

    def _later(self, now: float) -> set[str]:
        """Return the nodes whose findings are of a later time than a clock that was set back shows.

        The samples of the time that it shows were taken before the fault, and refute nothing.
        """
        if now >= self.state.lived_until:
            return set()
        continuity = self.config.continuity
        recognised = continuity.threshold_seconds + continuity.clear_seconds
        return {
            node
            for node, finding in self.state.standing.items()
            if finding.since + recognised > now
        }

    def _why_not_compared(self, job: Job) -> str:
        nodes, needed = len(job.nodes), self.config.min_nodes
        if nodes < needed:
            return f"{nodes} node{'' if nodes == 1 else 's'}, needs {needed}"
        return "too many nodes deviate at once" if self.method.common_cause else ""
