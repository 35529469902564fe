"""Decides: alerts, what was answered, what is known, settings and the time give a plan.

Nothing here reads a clock, a file or the network, and the same arguments give the same plan:
``plan`` and a dry run show exactly what would be done.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_common.health_conditions import condition_of_alert
from peerwatch_responder.policy import alert_guards, limit_guards, node_guards
from peerwatch_responder.policy.case import Case, Objection
from peerwatch_responder.policy.plan import Decision, Plan
from peerwatch_responder.policy.state import Response, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_responder.alert import Alert
    from peerwatch_responder.policy.case import Guard
    from peerwatch_responder.policy.state import State, Surroundings
    from peerwatch_responder.settings.policy import PolicyConfig, RuleConfig


# As in rules/responder.rules.yaml.
OWN_COMPONENT = "responder"


def decide(
    alerts: Iterable[Alert],
    state: State,
    surroundings: Surroundings,
    settings: PolicyConfig,
    now: float,
) -> Plan:
    """Return what is done about each alert, and why.

    Parameters
    ----------
    alerts
        All that are known to fire, and those that were just resolved.
    state
        What the journal says.
    surroundings
        What the cluster and Prometheus say.
    settings
        Section ``policy``.
    now
        Unix seconds.
    """
    ordered = sorted(alerts, key=lambda each: (each.starts_at, each.fingerprint, each.node))
    decisions: list[Decision] = []
    cases: list[Case] = []
    for alert in ordered:
        rule = rule_for(alert, settings)
        if rule is None:
            text = f"No rule matches {alert.name or 'an alert without a name'}."
            decisions.append(Decision(alert, "ignore", "no_rule", text))
            continue
        case = Case(
            *(alert, rule, alert.key(rule.do), state, surroundings, frozenset(), settings, now)
        )
        objection = _first(alert_guards.GUARDS, case)
        if objection is None:
            cases.append(case)
        else:
            decisions.append(_decision(case, objection))
    wants = _new_wants(cases, state)
    trips = _trips(state, wants, settings, now)
    if trips is not None:
        state = replace(state, tripped_at=now)
    suspects = _suspects(cases)
    for case in cases:
        job = case.alert.cluster, case.alert.job_id
        complete = replace(case, state=state, suspects=suspects.get(job, frozenset()))
        # Of what was asked already only this may be otherwise by now: the alert may stand twice.
        guards = (alert_guards.was_not_answered, *node_guards.GUARDS, *limit_guards.GUARDS)
        objection = _first(guards, complete)
        decisions.append(_decision(complete, objection))
        if objection is None:
            state = _with_planned(state, complete)
    decisions.sort(key=lambda each: (each.alert.starts_at, each.alert.fingerprint))
    return Plan(tuple(decisions), wants, trips)


def takes_out(actions: Iterable[str], take_out: frozenset[str] | None) -> bool:
    """Whether a node is out after some actions, by the names of those that take it out."""
    return take_out is None or not take_out.isdisjoint(actions)


def rule_for(alert: Alert, settings: PolicyConfig) -> RuleConfig | None:
    """Return the first rule that matches an alert; None: there is none.

    What the responder itself says of a node is never answered, whatever rules match.
    """
    if alert.labels.get("component") == OWN_COMPONENT:
        return None
    condition = condition_of_alert(alert.name)
    severity = None if condition is None else condition.severity
    for rule in settings.rules:
        if rule.condition in {None, severity} and all(
            re.fullmatch(wanted, alert.labels.get(label, ""))
            for label, wanted in rule.match.items()
        ):
            return rule
    return None


def _first(guards: Sequence[Guard], case: Case) -> Objection | None:
    for guard in guards:
        objection = guard(case)
        if objection is not None:
            return objection
    return None


def _decision(case: Case, objection: Objection | None) -> Decision:
    rule = case.rule
    if objection is None:
        condition = condition_of_alert(case.alert.name)
        says = "" if condition is None else f" ({condition.name}, severity {condition.severity})"
        text = f"Rule {rule.name!r}: {', '.join(rule.do)} for node {case.alert.node}{says}."
        objection = Objection("act", "rule", text)
    return Decision(case.alert, *objection, rule.name, rule.do, case.key)


def _new_wants(cases: list[Case], state: State) -> tuple[Want, ...]:
    known = {each.key for each in state.wants}
    return tuple(
        Want(case.key, *case.place, case.now)
        for case in {case.key: case for case in cases}.values()
        if case.key not in known
    )


def _trips(state: State, wants: tuple[Want, ...], settings: PolicyConfig, now: float) -> str | None:
    breaker = settings.breaker
    nodes = {
        (each.cluster, each.node)
        for each in (*state.wants, *wants)
        if now - each.at < breaker.seconds
    }
    if state.tripped_at is not None or not wants or len(nodes) < breaker.nodes:
        return None
    return (
        f"{len(nodes)} nodes were to be taken out within {breaker.seconds:.0f} s; "
        f"breaker.nodes is {breaker.nodes}."
    )


def _suspects(cases: list[Case]) -> dict[tuple[str, str], frozenset[str]]:
    suspects: dict[tuple[str, str], set[str]] = {}
    for case in cases:
        alert = case.alert
        if alert.job_id:
            suspects.setdefault((alert.cluster, alert.job_id), set()).add(alert.node)
    return {job: frozenset(nodes) for job, nodes in suspects.items()}


def _with_planned(state: State, case: Case) -> State:
    alert = case.alert
    response = Response(
        key=case.key,
        cluster=alert.cluster,
        node=alert.node,
        job_id=alert.job_id,
        actions=case.rule.do,
        status="planned",
        planned_at=case.now,
        fingerprint=alert.fingerprint,
        starts_at=alert.starts_at,
        labels=alert.labels,
        takes_out=takes_out(case.rule.do, case.surroundings.take_out),
    )
    return replace(state, responses={**state.responses, case.key: response})
