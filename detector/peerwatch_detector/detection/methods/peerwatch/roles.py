"""Who is whose peer in a job whose nodes differ by design."""

from __future__ import annotations

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.jobs import Job


def groups_of(job: Job, config: DetectorConfig) -> dict[str, tuple[str, ...]]:
    """Return the nodes of every role with enough nodes to be compared among themselves."""
    return job.groups(config.min_nodes) if config.peerwatch.peer_groups else {}


def peers_of(node: str, job: Job, config: DetectorConfig) -> tuple[str, ...]:
    """Return the nodes that ``node`` is compared with, itself included."""
    for nodes in groups_of(job, config).values():
        if node in nodes:
            return nodes
    return job.nodes
