"""A node that vanishes is a finding, not missing data.

Only a node that vanishes alone: when most of a job's nodes become absent together, the job ended
or the monitoring broke, and nobody is flagged, nor who comes back a little later than the others.
Nodes that departed at other times are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import ABSENT, Deviation
from peerwatch_detector.jobs import Job

# At least this share of the job's nodes must still be there for an absence to mean anything: a job
# that ended, or a monitoring that broke, takes most of them at once.
SMALLEST_PRESENT_SHARE = 0.5
# Nodes that vanish within so many seconds vanish together: Prometheus lets a series that ends
# without a stale marker stand for five minutes (its query.lookback-delta).
TOGETHER_SECONDS = 300.0
_NOBODY: Mapping[str, float] = MappingProxyType({})


def absent_seconds(
    absent_since: Mapping[str, float],
    nodes: int,
    now: float,
    after_seconds: float,
    back_since: Mapping[str, float] = _NOBODY,
) -> dict[str, float]:
    """Return for how long each node has been absent.

    Parameters
    ----------
    absent_since
        Unix time at which each absent node was last seen.
    nodes
        Number of nodes of the job, absent ones included.
    now
        Unix time.
    after_seconds
        An absence shorter than this is a missed scrape.
    back_since
        Unix time at which each node that has just come back was last seen before.

    Returns
    -------
    dict[str, float]
        Seconds by node, without those that vanished together with most of the others.
    """
    absent, back = (
        np.sort(np.fromiter(each.values(), float)) for each in (absent_since, back_since)
    )
    found = {}
    for node, last in absent_since.items():
        if now - last < after_seconds:
            continue
        window = (last - TOGETHER_SECONDS, last + TOGETHER_SECONDS)
        (before, until), (back_from, back_to) = (np.searchsorted(x, window) for x in (absent, back))
        there = nodes - int(before)
        together = int(until - before) + int(back_to - back_from)
        if there - together >= SMALLEST_PRESENT_SHARE * there:
            found[node] = now - last
    return found


def absent_deviations(job: Job, now: float, config: DetectorConfig) -> list[Deviation]:
    """Return a deviation of every node of a job that is absent."""
    if not config.absent.enabled:
        return []
    after = config.absent.after_seconds
    absent = absent_seconds(job.absent_since, len(job.nodes), now, after, job.back_since)
    needed = config.absent.threshold_seconds
    return [
        Deviation(
            node, "", ABSENT, ABSENT, 0, now - seconds, seconds, needed, seconds / needed, 0.0
        )
        for node, seconds in absent.items()
    ]
