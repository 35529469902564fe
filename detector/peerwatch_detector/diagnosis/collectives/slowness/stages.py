"""Stages of a pipeline: a rank is compared with those of its own stage in other replicas.

A stage with more to do is late in every replica, and at the end of a step the first stage is, whose
backward comes last: neither is a node's fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from peerwatch_detector.diagnosis.collectives.members import parse_ranks
from peerwatch_detector.diagnosis.diagnoser import Samples

# What torch's device meshes, Megatron and others call the groups of a pipeline.
STAGES_QUERY = (
    "max by (description, members) (collective_group_info{ {{- job -}} ,"
    'description=~"(?i)(.*[^a-z])?(pp|pipe|pipeline)([^a-z].*)?"})'
)


def read_stages(samples: Samples) -> dict[int, int]:
    """Return the stage of each rank, its place in its pipeline; empty if there is none."""
    found: dict[int, int] = {}
    for series in samples.get("stages", ()):
        try:
            members = sorted(parse_ranks(series.labels.get("members", "")))
        except ValueError:
            continue
        # Of several pipelines that a rank is in, as with an embedding's own, the longest counts.
        for stage, rank in enumerate(members):
            if stage >= found.get(rank, 0):
                found[rank] = stage
    return found


def beyond_stage(
    shares: Mapping[int, float], stages: Mapping[int, int], nodes: Mapping[int, str]
) -> dict[int, float]:
    """Return by how much each rank of a group is later than its stage is on any other node.

    Parameters
    ----------
    shares
        By rank, for which share of its time the group waits for it.
    stages, nodes
        Stage and node of each rank. A stage that is on one node only cannot be compared.
    """
    by_stage: dict[int, dict[str, float]] = {}
    for rank, share in shares.items():
        places = by_stage.setdefault(stages.get(rank, 0), {})
        node = nodes.get(rank, "")
        places[node] = max(share, places.get(node, 0.0))
    if len(by_stage) < 2:
        return dict(shares)
    usual = {
        stage: min(places.values()) if len(places) > 1 else max(places.values())
        for stage, places in by_stage.items()
    }
    return {rank: max(0.0, share - usual[stages.get(rank, 0)]) for rank, share in shares.items()}
