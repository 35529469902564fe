"""The metrics about the traffic of jobs; part of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_detector.diagnosis.traffic.job_traffic import JobTraffic

RATIO = MetricSpec(
    "peerwatch_job_traffic_ratio",
    "gauge",
    "ratio",
    ("job_id",),
    "What a node of the job sends and receives, over RDMA or else the network, as a share of the "
    "job's own usual traffic of the last hour; a checkpoint lowers it for as long as it takes. "
    "Absent while it is not known.",
    "diagnosis",
)
PERIOD = MetricSpec(
    "peerwatch_job_traffic_period_seconds",
    "gauge",
    "seconds",
    ("job_id",),
    "After how long the job's traffic repeats itself, as with every step. Absent while nothing "
    "repeats, or faster than the samples show.",
    "diagnosis",
)
SHORTEST = MetricSpec(
    "peerwatch_job_traffic_shortest_period_seconds",
    "gauge",
    "seconds",
    ("job_id",),
    "The shortest period that can be seen: 2.5 times the window of the rates, or the time between "
    "two samples if that is longer. Of jobs with shorter steps only the level is watched.",
    "diagnosis",
    not_drawn="why there is no period; it follows from the settings",
)
TRAFFIC_SPECS = (RATIO, PERIOD, SHORTEST)


def traffic_families(known: Mapping[str, JobTraffic]) -> Iterator[Family]:
    """Yield the families of every job's traffic."""
    ratio, period, shortest = (spec.family() for spec in TRAFFIC_SPECS)
    for job_id, traffic in known.items():
        ratio.add_metric((job_id,), traffic.ratio)
        shortest.add_metric((job_id,), traffic.shortest_seconds)
        if traffic.period_seconds is not None:
            period.add_metric((job_id,), traffic.period_seconds)
    yield from (ratio, period, shortest)
