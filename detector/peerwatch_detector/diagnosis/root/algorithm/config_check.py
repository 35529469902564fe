"""ConfigCheck of Aegis' Algorithm 1: nodes whose settings differ from those of most others."""

from __future__ import annotations

import re

from peerwatch_detector.diagnosis.root.algorithm.episode import Episode
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import by_node
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation

# A minority is small: where a quarter of the nodes differ, a job is mixed on purpose. The share of
# ``similarity.largest_share``, from which on deviations have a common cause.
_MOST_SHARE = 0.25
# What is known to break or slow collectives; other differences, as of a kernel, only support.
_MATTERS = re.compile(
    r"nccl|cuda|driver|firmware|fw\b|mtu|pfc|ecn|dscp|gid|link_speed|link_width|rate|acs|"
    r"max_?read_?req|roce|ofed|peermem|gdr|torch|persistence|mig|time|ntp|ecc|clock|power_limit|ulimit|memlock",
    re.IGNORECASE,
)
# What both ends of a connection must agree on: where one differs, transfers fail or never begin.
_BREAKS = re.compile(r"mtu|pfc|gid|roce|nccl|ofed", re.IGNORECASE)


def breaking_settings(episode: Episode, job: JobPlaces) -> dict[str, list[Observation]]:
    """Return the odd settings without which connections do not work, by node."""
    found = {
        node: [each for each in own if _BREAKS.search(each.evidence.name)]
        for node, own in odd_settings(episode, job).items()
    }
    return {node: own for node, own in found.items() if own}


def odd_settings(episode: Episode, job: JobPlaces) -> dict[str, list[Observation]]:
    """Return the settings in which few nodes differ, and that matter to a job, by node."""
    differing = [
        each
        for each in (*episode.earlier, *episode.observations)
        if each.evidence.kind == "config" and _MATTERS.search(each.evidence.name)
    ]
    found: dict[str, list[Observation]] = {}
    for key in dict.fromkeys(each.evidence.name for each in differing):
        nodes = by_node([each for each in differing if each.evidence.name == key], job)
        if len(nodes) <= max(1.0, _MOST_SHARE * len(job.nodes)):
            for node, own in nodes.items():
                found.setdefault(node, []).extend(own)
    return found
