"""How much points at each node, where no critical error names one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from peerwatch_detector.diagnosis.root.algorithm.episode import CLOCK_SECONDS, Episode
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import by_node
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation

# Weights are chosen in units of a sign that says who differs, 1: a node is named from one sign that
# names it by itself, 2, or from two that support each other.
LEAST_WEIGHT = 2.0
# It must be as much more suspected than the next one: one more sign of the same weight.
TIMES_THE_NEXT = 2.0
# What most nodes show says nothing about one of them: the share of config_check.py.
_MOST_SHARE = 0.25

# By kind: a verdict about collectives is as direct as RootDiag; silence, traffic and statistics say
# who differs, and need a second sign.
_WEIGHTS: Mapping[str, float] = {
    "collective": 2.0,
    "process": 2.0,
    "heartbeat": 1.5,
    "log": 1.5,
    "traffic": 1.0,
    "finding": 1.0,
}
# Of a verdict, by its confidence; and of what only hints at a node. Chosen: a sure verdict names a
# node beside a sign of 1.5 at another; an undecided one and a hint are half a sign each.
_CONFIDENT: Mapping[str, float] = {"sure": 3.0, "likely": 2.0, "undecided": 0.5}
HINT_WEIGHT = 0.5


@dataclass(slots=True)
class Suspicion:
    """What points at one node.

    Parameters
    ----------
    node
        Its name.
    weight
        Sum over what points at it.
    speaks_for
        Observations, the heaviest first.
    reasons
        Steps that point at it, in sentences.
    """

    node: str
    weight: float = 0.0
    speaks_for: list[Observation] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, weight: float, seen: Iterable[Observation], reason: str = "") -> None:
        """Count one more thing that points at it."""
        self.weight += weight
        self.speaks_for += seen
        if reason:
            self.reasons.append(reason)


def suspicions(episode: Episode, job: JobPlaces) -> dict[str, Suspicion]:
    """Return what observations by themselves say about each node."""
    found: dict[str, Suspicion] = {}
    few = max(1.0, _MOST_SHARE * len(job.nodes))
    for rule, seen in _by_rule(before_the_end(episode)).items():
        nodes = by_node(seen, job)
        if len(nodes) > few:
            continue
        for node, own in nodes.items():
            weight = max(_weight(each) for each in own)
            found.setdefault(node, Suspicion(node)).add(weight, own, rule)
    for rule, seen in _by_rule(episode.of("hint")).items():
        nodes = by_node([each for each in seen if each.evidence.kind not in _LATER], job)
        if len(nodes) <= few:
            for node, own in nodes.items():
                found.setdefault(node, Suspicion(node)).add(HINT_WEIGHT, own, rule)
    return found


def before_the_end(episode: Episode) -> list[Observation]:
    """Return what is suspect, without processes that are killed once the job has failed."""
    seen = episode.of("suspect")
    signs = [each.time for each in episode.of("waiting", "broken")]
    signs += [each.time for each in episode.ends]
    latest = min(signs, default=float("inf")) + CLOCK_SECONDS
    return [each for each in seen if each.evidence.kind != "process" or each.time <= latest]


# ConfigCheck and NetDiag weigh these.
_LATER = ("config", "reach")


def most_suspected(found: Mapping[str, Suspicion]) -> Suspicion | None:
    """Return the node that more points at than at all others; None if it is not clear enough."""
    ordered = sorted(found.values(), key=lambda each: (-each.weight, each.node))
    if not ordered or ordered[0].weight < LEAST_WEIGHT:
        return None
    if len(ordered) > 1 and ordered[0].weight < TIMES_THE_NEXT * ordered[1].weight:
        return None
    return ordered[0]


def _weight(each: Observation) -> float:
    if each.evidence.kind == "collective":
        return _CONFIDENT.get(each.evidence.class_name, _WEIGHTS["collective"])
    return _WEIGHTS.get(each.evidence.kind, 1.0)


def _by_rule(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    found: dict[str, list[Observation]] = {}
    for each in observations:
        found.setdefault(each.rule.name, []).append(each)
    return found
