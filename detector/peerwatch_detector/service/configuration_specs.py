"""The metrics about how jobs' nodes are set up; part of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_detector.diagnosis.config.watch import ConfigState

MINORITY = MetricSpec(
    "peerwatch_job_config_minority",
    "gauge",
    "1",
    ("job_id", "node", "key"),
    "1 while a node of the job is set up unlike more than half of its nodes, in this key of "
    "node_config_info or rank_config_info.",
    "diagnosis",
)
MINORITY_INFO = MetricSpec(
    "peerwatch_job_config_minority_info",
    "gauge",
    "1",
    ("job_id", "node", "key", "value", "majority"),
    "What the node has, and what more than half of the job's nodes have; (unset) for a variable "
    "that its ranks lack. Always 1.",
    "diagnosis",
)
SPLIT = MetricSpec(
    "peerwatch_job_config_split",
    "gauge",
    "1",
    ("job_id", "key"),
    "How many values a key has of which none is that of more than half of the job's nodes, or "
    "whose minority has more than 64 nodes: nobody is named.",
    "diagnosis",
)
CHANGE = MetricSpec(
    "peerwatch_job_config_change_timestamp_seconds",
    "gauge",
    "seconds",
    ("job_id", "node", "key"),
    "When a node's configuration last changed while the job ran on it (Unix time), of the 64 "
    "newest changes.",
    "diagnosis",
)
CHANGE_INFO = MetricSpec(
    "peerwatch_job_config_change_info",
    "gauge",
    "1",
    ("job_id", "node", "key", "before", "after"),
    "What changed: the value before and after. Always 1.",
    "diagnosis",
)
READ = MetricSpec(
    "peerwatch_job_config_last_success_timestamp_seconds",
    "gauge",
    "seconds",
    ("job_id",),
    "When the configuration of the job's nodes was last read and compared (Unix time).",
    "diagnosis",
    not_drawn="how the comparison itself does; the log says why it fails",
)
CONFIGURATION_SPECS = (MINORITY, MINORITY_INFO, SPLIT, CHANGE, CHANGE_INFO, READ)


def configuration_families(states: Mapping[str, ConfigState]) -> Iterator[Family]:
    """Yield the families of every job's configuration."""
    minority, info, split, change, change_info, read = (
        spec.family() for spec in CONFIGURATION_SPECS
    )
    for job_id, state in states.items():
        read.add_metric((job_id,), state.time)
        for each in state.minorities:
            who = (job_id, each.node, each.key)
            minority.add_metric(who, 1)
            info.add_metric((*who, each.value, each.majority), 1)
        for key in state.splits:
            split.add_metric((job_id, key.key), key.values)
        for each_change in state.changes:
            who = (job_id, each_change.node, each_change.key)
            change.add_metric(who, each_change.time)
            change_info.add_metric((*who, each_change.before, each_change.after), 1)
    yield from (minority, info, split, change, change_info, read)
