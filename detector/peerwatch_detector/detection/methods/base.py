"""What a method of detection is: the pipeline and the service know this of it and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.config import MetricConfig
from peerwatch_detector.detection.explanation.explain import JobProgress
from peerwatch_detector.detection.findings import Deviation
from peerwatch_detector.detection.job_step_rate import JobStepRate
from peerwatch_detector.detection.scores import NodeScores
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.jobs import Job

Ranked = list[tuple[int, MetricConfig]]


@dataclass(frozen=True, slots=True)
class MetricScores:
    """What a method shows of one metric: by node, NaN where a node could not be evaluated.

    Parameters
    ----------
    normal, zscores
        Of the newest window.
    continuity
        Length of the node's deviation.
    coverage
        Share of the nodes with a sample in the newest window.
    """

    normal: Mapping[str, float]
    zscores: Mapping[str, float]
    continuity: Mapping[str, float]
    coverage: float

    @classmethod
    def of(cls, scores: NodeScores, lengths: NDArray[np.float64]) -> MetricScores:
        """Return scores by node, and the lengths of the nodes' deviations."""
        normal, zscores = scores.by_node(scores.normal), scores.by_node(scores.zscores)
        return cls(normal, zscores, scores.by_node(lengths), scores.coverage)


class Method(Protocol):
    """Compares the nodes of one job, and owns what it remembers of it between cycles.

    It is made with the settings, the models by metric and the job's state, in which it lets its
    findings stand. What is written out below holds for a method that compares nodes with one
    another only, and knows nothing of the job.
    """

    counts_absent: ClassVar[bool] = False
    """Whether a node that vanishes deviates; the papers' methods know no absent nodes."""
    shows_scores: bool = True
    """Whether anybody looks at scores; who wants findings only need not compute them."""

    def compare(self, job: Job, frames: Mapping[str, JobFrame]) -> None:
        """Take in some metrics before all are there, as a large job's first samples come in parts.

        ``detect`` goes on from there: of these metrics it needs only samples from ``needed_from``.
        """

    def detect(
        self, job: Job, frames: Mapping[str, JobFrame], absent: list[Deviation], now: float
    ) -> list[Deviation]:
        """Take in the samples that came since the last cycle, and raise what they show on the way.

        Parameters
        ----------
        job
            As discovered.
        frames
            By metric, preprocessed.
        absent
            Deviations of nodes that are absent now.
        now
            Unix time, for the findings' ``raised``.

        Returns
        -------
        list[Deviation]
            Those that run at the end, the absent nodes' first.
        """

    def raise_findings(self, job: Job, deviations: list[Deviation], now: float) -> None:
        """Raise what is decided at the end of a cycle only, out of what ``detect`` returned."""

    def quiet_seconds(self, node: str) -> float | None:
        """Return for how long a node has not been a candidate; None if nothing is known of it."""

    def scores(self, metrics: Iterable[str]) -> dict[str, MetricScores]:
        """Return what is shown of these metrics."""

    def needed_from(self) -> dict[str, float]:
        """Return by metric the Unix time from which its samples are needed."""

    def assume_like_peers(self, node: str, frame: JobFrame) -> None:
        """Expect nothing of a node's own past in a metric, as only faulty samples of it are there.

        Parameters
        ----------
        node
            Whom.
        frame
            The metric's first samples.
        """

    def peers_of(self, node: str, job: Job) -> Collection[str]:
        """Return the nodes that a node is compared with, itself included."""
        return job.nodes

    def progress_since(self, since: float, time: float) -> JobProgress:
        """Return what the job does at a time, and what it has lost since another."""
        return JobProgress("unknown")

    def step_rate(self) -> JobStepRate | None:
        """Return how fast the job finishes its steps, compared with itself; None = not known."""
        return None

    def restore_step_rate(self, metric: str, usual: float) -> None:
        """Go on with a usual step rate that was published before this process began."""

    @property
    def common_cause(self) -> bool:
        """Whether some deviations are left out because too many nodes have them at once."""
        return False


def ranked(metrics: Iterable[MetricConfig], frames: Mapping[str, JobFrame]) -> Ranked:
    """Return the metrics that have samples, with their places in the priority.

    The place counts metrics without samples too: it must not change when one comes or goes.
    """
    return [(rank, metric) for rank, metric in enumerate(metrics, start=1) if metric.name in frames]
