"""CriticalError of Aegis' Algorithm 1: nodes whose own hardware or driver says that it failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from peerwatch_detector.diagnosis.root.algorithm.episode import (
    AFTER_SECONDS,
    CLOCK_SECONDS,
    Episode,
)
from peerwatch_detector.diagnosis.root.algorithm.fan_out import MOST_NODES, fan_outs
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, by_node, common_place, node_of
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation
from peerwatch_detector.diagnosis.verdict import Confidence

# At the same moment: as rules/shared.rules.yaml takes nodes of a place to fail together.
_TOGETHER_SECONDS = 120.0
# One fault shows in several ways at once, as XID 79 and 74 (Meta: 43 % of PCIe errors). Chosen: a
# driver writes its lines within seconds, exporters stamp them with clocks two seconds apart.
_AT_ONCE_SECONDS = 10.0
# What a switch, a rack's power or its cooling takes from all its nodes.
_LOST = ("infiniband_link", "ethernet_link", "node_gone", "power")
_OF_A_PLACE = ("lost", "thermal")
# A node of which ranks still speak so long after it became absent is there. Chosen: a line that was
# under way has come by then, four scrapes of 15 s later.
_ALIVE_SECONDS = 60.0


def critical_errors(episode: Episode, job: JobPlaces) -> tuple[Cause, ...]:
    """Return a cause for each node with a critical error, or for what too many nodes share."""
    if episode.begun is None:
        return ()
    latest = episode.begun + AFTER_SECONDS
    critical = [
        each
        for each in episode.of("critical")
        # An active check runs after the failure, because of it.
        if (each.time <= latest or each.evidence.kind == "check") and not _alive(each, episode, job)
    ]
    found = _causes(critical, critical, "sure", job, episode.changes)
    return tuple(_specific(cause, episode, job) for cause in found)


def weak_errors(episode: Episode, job: JobPlaces) -> tuple[Cause, ...]:
    """Return a cause for each node with an error that mostly, but not always, stops a job.

    It must have come before the first rank complained, if any did.
    """
    if episode.begun is None:
        return ()
    complaints = [each.time for each in episode.of("waiting", "broken")]
    if complaints:
        latest = max(episode.begun, min(complaints)) + CLOCK_SECONDS
    else:
        latest = episode.begun + AFTER_SECONDS
    signs = episode.of("weak")
    weak = [each for each in signs if each.time <= latest]
    # The kernel's watchdog looks every two minutes: nodes that hang together say so one by one.
    near = [each for each in signs if each.time <= latest + AFTER_SECONDS]
    return _causes(weak, near, "likely", job, episode.changes)


def _causes(
    signs: Sequence[Observation],
    near: Sequence[Observation],
    confidence: Confidence,
    job: JobPlaces,
    changes: Sequence[Observation],
) -> tuple[Cause, ...]:
    """Return a cause for each node, and one for each sign that too many of them show.

    Parameters
    ----------
    signs
        Of all nodes, in order of time.
    near
        Those that say how many nodes show a sign, later ones among them.
    confidence
        How sure a sign is of its node.
    job
        Who is who.
    changes
        What was done to nodes before.
    """
    fanned = fan_outs(near, job, changes)
    own = [each for each in signs if each.rule.name not in fanned]
    found = [_cause(node, seen, confidence) for node, seen in by_node(own, job).items()]
    found = _at_most(_shared(found, job))
    for name, seen in fanned.items():
        if any(each.rule.name == name for each in signs):
            nodes = by_node(seen, job)
            each_of_them = [_cause(node, signs_of, confidence) for node, signs_of in nodes.items()]
            found.append(_common(each_of_them, common_place(nodes, job)))
    return tuple(sorted(found, key=lambda each: each.time))


def _at_most(causes: Sequence[Cause]) -> list[Cause]:
    """Return at most so many nodes with one sign: who fails next fails of what they share."""
    found = []
    for cause in causes:
        same = [each for each in causes if each.nodes and each.main.rule is cause.main.rule]
        if not cause.nodes or len(same) <= MOST_NODES:
            found.append(cause)
        elif cause in same[:MOST_NODES]:
            more = f"{len(same) - MOST_NODES} more nodes show it soon after"
            found.append(replace(cause, against=(*cause.against, more)))
    return found


def _specific(cause: Cause, episode: Episode, job: JobPlaces) -> Cause:
    """Let the node's own lines say why an active check of it failed, where they do."""
    if cause.main.evidence.kind != "check" or not cause.nodes:
        return cause
    signs = [each for each in episode.of("weak") if node_of(each, job) in cause.nodes]
    signs = [each for each in signs if each.rule.domain != "unknown"]
    if not signs:
        return cause
    rule = signs[0].rule
    seen = tuple(sorted((*cause.speaks_for, *signs), key=lambda each: each.time))
    return replace(cause, symptom=rule.symptom, domain=rule.domain, main=signs[0], speaks_for=seen)


def _alive(observation: Observation, episode: Episode, job: JobPlaces) -> bool:
    """Whether ranks of an absent node have spoken long after: only its exporter is gone."""
    if observation.evidence.kind != "absent":
        return False
    node = node_of(observation, job)
    return any(
        node_of(each, job) == node
        and each.evidence.kind in ("log", "process", "kernel", "xid")
        and each.time > observation.time + _ALIVE_SECONDS
        for each in episode.observations
    )


def _cause(node: str, own: Sequence[Observation], confidence: Confidence) -> Cause:
    first = own[0].time
    at_once = [each for each in own if each.time <= first + _AT_ONCE_SECONDS]
    # What lasts decides what to do with the node; of equals the first says what happened.
    # A check says that something is wrong, any other sign what.
    main = min(
        at_once,
        key=lambda each: (
            each.evidence.kind == "check",
            each.rule.duration != "permanent",
            each.time,
        ),
    )
    action = "replace" if any(each.rule.action == "replace" for each in own) else main.rule.action
    rule = main.rule
    return Cause((node,), rule.symptom, rule.domain, action, confidence, first, main, tuple(own))


def _shared(causes: Iterable[Cause], job: JobPlaces) -> list[Cause]:
    """Put the causes of one symptom together that too many nodes show at the same moment."""
    by_symptom: dict[str, list[Cause]] = {}
    for cause in causes:
        by_symptom.setdefault(_family(cause), []).append(cause)
    found = []
    for same in by_symptom.values():
        together = [each for each in same if each.time - same[0].time <= _TOGETHER_SECONDS]
        place = common_place([node for each in together for node in each.nodes], job)
        two_of_a_place = len(together) > 1 and place and _family(same[0]) in _OF_A_PLACE
        if len(together) <= MOST_NODES and not two_of_a_place:
            found += same
            continue
        found += [each for each in same if each.time - same[0].time > _TOGETHER_SECONDS]
        found.append(_common(together, place))
    return sorted(found, key=lambda each: each.time)


def _family(cause: Cause) -> str:
    """Return what nodes of one place lose together: links, power, or the symptom itself."""
    return "lost" if cause.symptom in _LOST else cause.symptom


def _common(causes: Sequence[Cause], place: str) -> Cause:
    first = causes[0]
    shared = f"what {len(causes)} nodes share"
    against = (
        f"{len(causes)} nodes show it at about the same time: what they share has failed, not each "
        "of them"
    )
    if len(causes) == 1:
        place, shared = "", "what was changed"
        against = "the same was changed on other nodes, which do not show it yet"
    return replace(
        first,
        nodes=(),
        action="ask",
        confidence="likely" if place else "undecided",
        speaks_for=tuple(each for cause in causes for each in cause.speaks_for),
        against=(against,),
        place=place or shared,
    )
