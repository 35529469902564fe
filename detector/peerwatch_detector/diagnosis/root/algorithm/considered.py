"""What else was weighed, and why it is not the answer: the other half of a differential diagnosis.

Meta excludes domains one after another until one is left. So every node that has a sign of its own,
and the program, the storage and the scheduler where they have one, are listed with what speaks for
them and with the reason for which they are not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from peerwatch_detector.diagnosis.root.algorithm.episode import CLOCK_SECONDS, Episode
from peerwatch_detector.diagnosis.root.algorithm.fan_out import most_nodes
from peerwatch_detector.diagnosis.root.algorithm.program import first_complaint
from peerwatch_detector.diagnosis.root.algorithm.suspicion import before_the_end
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.cause import Cause, by_node, names, node_of
from peerwatch_detector.diagnosis.root.taxonomy.rule import Observation, Role

# Who reads it wants the next candidates, not all of a thousand nodes. Chosen: with the answer above
# them they fit in a terminal of 24 lines.
_MOST_LINES = 8
_SHARED: Mapping[Role, str] = {
    "user": "the training program",
    "storage": "the storage",
    "platform": "the scheduler",
}


@dataclass(frozen=True, slots=True)
class Considered:
    """An answer that was weighed and is not given.

    Parameters
    ----------
    what
        The node, or nodes with the same signs; or ``the training program``, ``the storage``,
        ``the scheduler``.
    speaks_for
        Observations, in order of time.
    against
        Why it is not the answer, to follow "because".
    """

    what: str
    speaks_for: tuple[Observation, ...]
    against: str


def considered(causes: Sequence[Cause], seen: Episode, job: JobPlaces) -> tuple[Considered, ...]:
    """Return what was not named though something speaks for it, the first sign first.

    Where it is open whose fault something is, the nodes that were weighed stand in what speaks
    against the cause that names nobody.

    Parameters
    ----------
    causes
        What is named.
    seen
        The observations of the failure.
    job
        Who is who.
    """
    decided = [cause for cause in causes if cause.confidence != "undecided"]
    lead = min(decided, key=lambda cause: cause.time, default=None)
    found = _shared(causes, lead, seen)
    if lead is not None:
        found += _nodes(causes, lead, seen, job)
    return tuple(sorted(found, key=lambda each: each.speaks_for[0].time))


def _nodes(causes: Sequence[Cause], lead: Cause, seen: Episode, job: JobPlaces) -> list[Considered]:
    """Return nodes with signs of their own, also of errors that had passed."""
    named = {node for cause in causes for node in (*cause.nodes, *by_node(cause.speaks_for, job))}
    # Processes are killed on all nodes once the job has failed.
    signs = [*seen.of("critical", "weak"), *before_the_end(seen)]
    now = _without(by_node(sorted(signs, key=lambda each: each.time), job), named)
    past = [each for each in seen.recovered if each.rule.role in ("critical", "weak")]
    passed = _without(by_node(past, job), named)
    # That it was started again is what its error passed by.
    now = {
        node: own
        for node, own in now.items()
        if node not in passed or any(each.evidence.kind != "boot" for each in own)
    }
    passed = _without(passed, now)
    showing = _nodes_showing(seen, job)
    against = {node: _against_node(own, lead, showing, job) for node, own in now.items()}
    against |= dict.fromkeys(passed, "it had passed before the job suffered")
    return _alike({**now, **passed}, against)[:_MOST_LINES]


def _alike(nodes: Mapping[str, list[Observation]], against: Mapping[str, str]) -> list[Considered]:
    """Return nodes with the same signs, and the same against them, as one."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, own in nodes.items():
        rules = sorted({each.rule.name for each in own})
        groups.setdefault((against[node], *rules), []).append(node)
    return [
        Considered(names(group), tuple(each for node in group for each in nodes[node]), why)
        for (why, *_), group in groups.items()
    ]


def _without(
    nodes: Mapping[str, list[Observation]], named: Collection[str]
) -> dict[str, list[Observation]]:
    return {node: own for node, own in nodes.items() if node not in named}


def _against_node(
    own: Sequence[Observation], lead: Cause, showing: Mapping[str, int], job: JobPlaces
) -> str:
    if later := _later(own, lead):
        return later
    shared = showing[own[0].rule.name]
    if shared > most_nodes(own[0].rule, job):
        return f"{shared} nodes show the same"
    if all(each.rule.role == "suspect" for each in own):
        return f"it says who differs, and not why; what {_subject(lead)} shows says why"
    return f"more points at {_subject(lead)}"


def _nodes_showing(seen: Episode, job: JobPlaces) -> Counter[str]:
    """Return how many nodes show a sign, by the name of its rule."""
    shown = {(each.rule.name, node_of(each, job)) for each in seen.observations}
    return Counter(name for name, node in shown if node)


def _shared(causes: Sequence[Cause], lead: Cause | None, seen: Episode) -> list[Considered]:
    """Return the program, the storage and the scheduler, where they have signs and are not it."""
    roles = {cause.main.rule.role for cause in causes}
    found = []
    for role, what in _SHARED.items():
        own = seen.of(role)
        if own and role not in roles:
            found.append(Considered(what, tuple(own), _against_shared(own, lead, seen)))
    return found


def _against_shared(own: Sequence[Observation], lead: Cause | None, seen: Episode) -> str:
    complaint = first_complaint(seen)
    if lead is not None and (later := _later(own, lead)):
        return later
    if own[0].time > complaint + CLOCK_SECONDS:
        after = _duration(own[0].time - complaint)
        return f"its first sign came {after} after a rank first complained about another"
    if lead is not None and own[0].rule.ambiguous:
        return f"a fault of hardware shows the same, and {_subject(lead)} has a sign of its own"
    if lead is not None:
        return f"more points at {_subject(lead)}"
    return "something had gone wrong before"


def _later(own: Iterable[Observation], lead: Cause) -> str:
    after = min(each.time for each in own) - lead.time
    if after <= CLOCK_SECONDS:
        return ""
    return f"its first sign came {_duration(after)} after that of {_subject(lead)}"


def _subject(cause: Cause) -> str:
    if cause.nodes:
        return names(cause.nodes)
    return cause.place or _SHARED.get(cause.main.rule.role, "what is named")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
