"""CriticalError of Aegis' Algorithm 1: nodes whose own hardware or driver says that it failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from peerwatch_detector.diagnosis.root.cause import Cause, by_node, common_place, node_of
from peerwatch_detector.diagnosis.root.episode import AFTER_SECONDS, CLOCK_SECONDS, Episode
from peerwatch_detector.diagnosis.root.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.rule import Observation
from peerwatch_detector.diagnosis.verdict import Confidence

# More nodes than these do not fail in the same way at the same moment: what they share does.
MOST_NODES = 2
# At the same moment: as rules/shared.rules.yaml takes nodes of a place to fail together.
_TOGETHER_SECONDS = 120.0
# One fault shows in several ways at once, as XID 79 and 74 (Meta: 43 % of PCIe errors).
_AT_ONCE_SECONDS = 10.0
# What a switch, a rack's power or its cooling takes from all its nodes.
_LOST = ("infiniband_link", "ethernet_link", "node_gone", "power")
_OF_A_PLACE = ("lost", "thermal")
# A node of which ranks still speak so long after it became absent is there.
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
    found = [_cause(node, own, "sure") for node, own in by_node(critical, job).items()]
    return tuple(_shared(found, job))


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
    weak = [each for each in episode.of("weak") if each.time <= latest]
    found = [_cause(node, own, "likely") for node, own in by_node(weak, job).items()]
    return tuple(_shared(found, job))


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
    main = min(at_once, key=lambda each: (each.rule.duration != "permanent", each.time))
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
        found += [each for each in same if each not in together]
        found.append(_common(together, place))
    return sorted(found, key=lambda each: each.time)


def _family(cause: Cause) -> str:
    """Return what nodes of one place lose together: links, power, or the symptom itself."""
    return "lost" if cause.symptom in _LOST else cause.symptom


def _common(causes: Sequence[Cause], place: str) -> Cause:
    first = causes[0]
    return replace(
        first,
        nodes=(),
        action="ask",
        confidence="likely" if place else "undecided",
        speaks_for=tuple(each for cause in causes for each in cause.speaks_for),
        against=(
            f"{len(causes)} nodes show it within {_TOGETHER_SECONDS:.0f} s: what they share has "
            "failed, not each of them",
        ),
        place=place or f"what {len(causes)} nodes share",
    )
