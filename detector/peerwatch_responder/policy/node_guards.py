"""Guards about the node: whose is it, and what was done to it before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_responder.policy.case import Objection

if TYPE_CHECKING:
    from peerwatch_responder.policy.case import Case, Guard
    from peerwatch_responder.policy.state import Status

# Answers that did something, or may have.
_TRIED: frozenset[Status] = frozenset({"acting", "done", "failed", "stuck", "passed", "undone"})


def is_not_out(case: Case) -> Objection | None:
    """Object to a second answer for a node that is out: its alerts are one fault."""
    for response in case.state.of_node.get(case.place, ()):
        if response.is_out:
            text = f"Node {response.node} is out already, by response {response.key}."
            return Objection("ignore", "already_out", text)
    return None


def was_not_answered_lately(case: Case) -> Objection | None:
    """Object to a second answer for a node so soon: its alerts are one fault, or it takes time."""
    limit = case.settings.repeat_seconds
    for response in case.state.of_node.get(case.place, ()):
        ago = case.now - response.planned_at
        if response.status != "refused" and ago < limit:
            text = (
                f"Node {response.node} was answered {ago:.0f} s ago by response {response.key}; "
                f"repeat_seconds is {limit:.0f}."
            )
            return Objection("wait", "answered_lately", text)
    return None


def was_not_released(case: Case) -> Objection | None:
    """Object for a while after a person put the node back: they know something."""
    released = case.state.released.get(case.place)
    limit = case.settings.cool_down_seconds
    if released is None or case.now - released >= limit:
        return None
    text = (
        f"A person put node {case.alert.node} back {case.now - released:.0f} s ago; "
        f"cool_down_seconds is {limit:.0f}."
    )
    return Objection("refuse", "released", text)


def has_attempts_left(case: Case) -> Objection | None:
    """Object to what was tried too often, and ask for a person."""
    settings = case.settings
    tried = [
        each
        for each in case.state.of_node.get(case.place, ())
        if each.status in _TRIED and case.now - each.planned_at < settings.attempts_seconds
    ]
    if len(tried) < settings.attempts:
        return None
    text = (
        f"Node {case.alert.node} was answered {len(tried)} times in "
        f"{settings.attempts_seconds / 86_400:g} days; attempts is {settings.attempts}. "
        "A person is needed."
    )
    return Objection("refuse", "attempts", text)


def is_nobody_elses(case: Case) -> Objection | None:
    """Object to a node that another has taken out: it stays theirs."""
    node = case.alert.node
    owner = case.surroundings.owners.get(case.place, "unknown")
    if owner == "ours":
        text = f"Node {node} is out by a response that the journal does not say is in force."
        return Objection("refuse", "other_owner", text)
    if owner == "other":
        text = f"Node {node} was taken out by somebody else; their mark stays."
        return Objection("refuse", "other_owner", text)
    if owner == "unknown":
        text = f"Whether node {node} is in use could not be learnt."
        return Objection("wait", "owner_unknown", text)
    return None


def diagnosis_agrees(case: Case) -> Objection | None:
    """Object where a rule wants the root diagnosis to advise what it does, and it does not."""
    wanted = case.rule.advice
    alert = case.alert
    whose = alert.cluster, alert.job_id, alert.node
    advice = case.surroundings.advice.get(whose, frozenset())
    if not wanted or not advice.isdisjoint(wanted):
        return None
    said = f"advises {' and '.join(sorted(advice)) or 'nothing'}"
    text = (
        f"The root diagnosis {said} for node {alert.node}; rule {case.rule.name!r} "
        f"wants {' or '.join(wanted)}."
    )
    return Objection("wait", "advice", text)


GUARDS: tuple[Guard, ...] = (
    is_not_out,
    was_not_answered_lately,
    was_not_released,
    has_attempts_left,
    is_nobody_elses,
    diagnosis_agrees,
)
