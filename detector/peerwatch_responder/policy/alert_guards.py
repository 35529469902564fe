"""Guards about the alert itself: is it one that can be answered at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peerwatch_responder.policy.case import Objection
from peerwatch_responder.policy.state import UNDER_WAY

if TYPE_CHECKING:
    from peerwatch_responder.policy.case import Case, Guard

# Clocks of Prometheus and ours; beyond it the age of an alert says nothing. As Kerberos
# has it by default.
_CLOCK_SECONDS = 300.0


def names_a_node(case: Case) -> Objection | None:
    """Object to an alert without a node: there is nothing to take out."""
    if case.alert.node:
        return None
    return Objection("ignore", "no_node", f"{case.alert.name} names no node.")


def was_not_answered(case: Case) -> Objection | None:
    """Object to a second answer, however often and by whomever the alert is sent."""
    response = case.state.responses.get(case.key)
    if response is None:
        return None
    if response.status in UNDER_WAY:
        return Objection("ignore", "under_way", f"Response {case.key} is under way.")
    text = f"Response {case.key} to this alert is {response.status}."
    return Objection("ignore", "answered", text)


def still_fires(case: Case) -> Objection | None:
    """Object to a fault that is over."""
    if case.alert.is_firing:
        return None
    return Objection("ignore", "resolved", "The alert is resolved.")


def is_recent(case: Case) -> Objection | None:
    """Object to what began long ago: it may come from a restart or a replay."""
    age = case.now - case.alert.starts_at
    limit = case.settings.max_age_seconds
    if age > limit:
        text = f"It began {age:.0f} s ago; max_age_seconds is {limit:.0f}."
        return Objection("refuse", "too_old", text)
    if age < -_CLOCK_SECONDS:
        text = f"It begins in {-age:.0f} s: a clock is wrong, here or at Prometheus."
        return Objection("wait", "in_future", text)
    return None


def fires_now(case: Case) -> Objection | None:
    """Object unless it fires by another word: a webhook may be late, repeated or forged."""
    firing = case.surroundings.firing
    if firing is None:
        return Objection("wait", "firing_unknown", "Whether it still fires could not be learnt.")
    if case.alert.fingerprint not in firing:
        return Objection("wait", "not_firing", "It does not fire any more, or not yet.")
    return None


def is_not_protected(case: Case) -> Objection | None:
    """Object to the control plane, our own node, and what the settings name."""
    node = case.alert.node
    named = any(re.fullmatch(each, node) for each in case.settings.protected_nodes)
    if not named and case.place not in case.surroundings.protected:
        return None
    return Objection("refuse", "protected", f"Node {node} is protected.")


GUARDS: tuple[Guard, ...] = (
    names_a_node,
    was_not_answered,
    still_fires,
    is_recent,
    is_not_protected,
    fires_now,
)
