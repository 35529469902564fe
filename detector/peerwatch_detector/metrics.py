"""The detector's own page for Prometheus: findings, scores and how the detector itself is doing.

Every page is built from one immutable snapshot, so a series exists exactly as long as the job,
node or finding it speaks of: nothing stale is left behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from prometheus_client import Metric
from prometheus_client.registry import Collector

from peerwatch_detector import __version__
from peerwatch_detector.errors import ReadFailure
from peerwatch_detector.pipeline import Judgement
from peerwatch_exporter.catalog import Family, family


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the detector knows at the end of a cycle.

    Parameters
    ----------
    judgements
        The last judgement of every job.
    last_success
        Unix time of the last good cycle, by job.
    discovered
        Unix time at which the jobs were last read.
    stages
        Seconds the last cycle spent, by stage.
    models
        (metric, model name, fingerprint) in use.
    """

    judgements: tuple[Judgement, ...] = ()
    last_success: dict[str, float] = field(default_factory=dict)
    discovered: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    models: tuple[tuple[str, str, str], ...] = ()
    samples: int = 0
    errors: dict[ReadFailure, int] = field(default_factory=dict)
    up: bool = False


class DetectorCollector(Collector):
    """Renders the present snapshot.

    Parameters
    ----------
    snapshot
        Returns the snapshot to render.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family of the catalogue's detector part."""
        snapshot = self._snapshot()
        for part in (_findings, _scores, _jobs, _self):
            # A family of the catalogue looks like a metric to a registry, and is none by type.
            yield from cast("Iterator[Metric]", part(snapshot))


def _findings(snapshot: Snapshot) -> Iterator[Family]:
    finding = family("peerwatch_finding")
    start = family("peerwatch_finding_start_timestamp_seconds")
    info = family("peerwatch_finding_info")
    for judgement in snapshot.judgements:
        for one in judgement.findings:
            finding.add_metric(one.key, 1)
            start.add_metric(one.key, one.since)
            if why := judgement.explanations.get(one):
                about = (one.job_id, one.node, one.gpu, one.metric, one.method)
                info.add_metric((*about, why.means.family, why.sentence), 1)
    yield from (finding, start, info)


def _scores(snapshot: Snapshot) -> Iterator[Family]:
    fault = family("peerwatch_fault_score")
    per_metric = {
        "peerwatch_normal_score": "normal_scores",
        "peerwatch_continuity_seconds": "continuity",
        "peerwatch_zscore": "zscores",
    }
    families = {name: family(name) for name in per_metric}
    for judgement in snapshot.judgements:
        job_id = judgement.job.job_id
        for node, score in judgement.fault_scores.items():
            fault.add_metric((job_id, node), score)
        for name, attribute in per_metric.items():
            for metric, values in getattr(judgement, attribute).items():
                for node, value in values.items():
                    if math.isfinite(value):
                        families[name].add_metric((job_id, node, metric), value)
    yield fault
    yield from families.values()


def _jobs(snapshot: Snapshot) -> Iterator[Family]:
    nodes = family("peerwatch_job_nodes")
    comparable = family("peerwatch_job_comparable")
    coverage = family("peerwatch_data_coverage_ratio")
    success = family("peerwatch_cycle_last_success_timestamp_seconds")
    for judgement in snapshot.judgements:
        job = judgement.job
        nodes.add_metric((job.job_id,), len(job.nodes))
        comparable.add_metric((job.job_id,), float(judgement.comparable))
        for metric, share in judgement.coverage.items():
            coverage.add_metric((job.job_id, metric), share)
    for job_id, time in snapshot.last_success.items():
        success.add_metric((job_id,), time)
    yield from (nodes, comparable, coverage, success)


def _self(snapshot: Snapshot) -> Iterator[Family]:
    build = family("peerwatch_build_info")
    build.add_metric((__version__,), 1)
    up = family("peerwatch_reader_up")
    up.add_metric((), float(snapshot.up))
    samples = family("peerwatch_read_samples_total")
    samples.add_metric((), snapshot.samples)
    errors = family("peerwatch_read_errors_total")
    reasons: tuple[ReadFailure, ...] = (
        "unreachable",
        "timeout",
        "http_4xx",
        "http_5xx",
        "truncated",
        "malformed",
        "refused",
    )
    for reason in reasons:
        errors.add_metric((reason,), snapshot.errors.get(reason, 0))
    stages = family("peerwatch_cycle_duration_seconds")
    for stage, seconds in snapshot.stages.items():
        stages.add_metric((stage,), seconds)
    models = family("peerwatch_model_info")
    for labels in snapshot.models:
        models.add_metric(labels, 1)
    discovered = family("peerwatch_discovery_last_success_timestamp_seconds")
    if snapshot.discovered is not None:
        discovered.add_metric((), snapshot.discovered)
    yield from (build, up, samples, errors, stages, models, discovered)
