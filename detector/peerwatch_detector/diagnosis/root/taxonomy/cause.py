"""A cause that a step of the root diagnosis names: whose fault, why, and what speaks for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation
from peerwatch_detector.diagnosis.verdict import Action, Confidence, Domain, Symptom


@dataclass(frozen=True, slots=True)
class Cause:
    """One answer to what made a job fail.

    Parameters
    ----------
    nodes
        The nodes at fault; empty where nobody is named, as for the program.
    place
        What the nodes have in common where it is the fault, such as "leaf l3"; no node is then.
    symptom, domain, action, confidence
        As in ``Rule``, and how sure.
    time
        When it was first seen.
    main
        The observation that says what happened.
    speaks_for
        Observations, ``main`` among them.
    against
        What speaks against it, in sentences.
    """

    nodes: tuple[str, ...]
    symptom: Symptom
    domain: Domain
    action: Action
    confidence: Confidence
    time: float
    main: Observation
    speaks_for: tuple[Observation, ...]
    against: tuple[str, ...] = ()
    place: str = ""

    @property
    def is_suspicion(self) -> bool:
        """Whether it repeats what statistics find, and nothing else says so."""
        return (
            self.confidence == "undecided"
            and bool(self.nodes)
            and self.main.evidence.kind == "finding"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the algorithm: what it is called, what it found, the causes that it names."""

    name: str
    result: str
    causes: tuple[Cause, ...] = ()


def node_of(observation: Observation, job: JobPlaces) -> str:
    """Return the node that an observation is about; empty if none is known."""
    evidence = observation.evidence
    if evidence.node or evidence.rank is None:
        return evidence.node
    return job.ranks.get(evidence.rank, "")


def by_node(observations: Iterable[Observation], job: JobPlaces) -> dict[str, list[Observation]]:
    """Return observations by node, in the order of the first of each; without those of no node."""
    found: dict[str, list[Observation]] = {}
    for each in observations:
        if node := node_of(each, job):
            found.setdefault(node, []).append(each)
    return found


def common_place(nodes: Iterable[str], job: JobPlaces) -> str:
    """Return the smallest place that all nodes share and of which they are half or more."""
    named = set(nodes)
    for level in ("rack", "leaf", "pod"):
        places = {job.places.get(node, {}).get(level, "") for node in named}
        if len(places) != 1 or not (place := places.pop()):
            continue
        there = [n for n in job.nodes if job.places.get(n, {}).get(level, "") == place]
        others = len(job.nodes) > len(there)
        if 2 * len(named) >= len(there) and others:
            return f"{level} {place}"
    return ""


def names(nodes: Iterable[str], most: int = 4) -> str:
    """Return names for a sentence: the first few, and how many more there are."""
    listed = list(nodes)
    shown = ", ".join(listed[:most])
    return shown if len(listed) <= most else f"{shown} and {len(listed) - most} more"
