"""Alerts, rules and what is known, as the responder's tests need them."""

from __future__ import annotations

import hashlib

from peerwatch_responder.alert import Alert
from peerwatch_responder.policy.state import Response, State, Surroundings
from peerwatch_responder.settings.policy import PolicyConfig, RuleConfig

NOW = 1_700_000_000.0
ISOLATE = RuleConfig(
    name="isolate",
    match={"alertname": "PeerwatchFaultyNode|PeerwatchXid.*", "severity": "critical"},
    do=("drain",),
)
SETTINGS = PolicyConfig(rules=(ISOLATE,))


def alert(node="n1", job="j1", *, age=60.0, name="PeerwatchFaultyNode", ended=None, **labels):
    every = {"alertname": name, "severity": "critical", "job_id": job, "node": node, **labels}
    kept = {key: value for key, value in every.items() if value}
    text = repr(sorted(kept.items()))
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Alert(kept, fingerprint, NOW - age, ended)


def around(*alerts, nodes=1000, **changes):
    known = {
        "firing": frozenset(each.fingerprint for each in alerts if each.is_firing),
        "nodes": nodes,
        "owners": {(each.cluster, each.node): "nobody" for each in alerts},
    }
    return Surroundings(**{**known, **changes})


def response(node="n1", job="j1", status="done", *, ago=7200.0, returned=False, key=""):
    return Response(
        key=key or f"key-{node}-{ago:g}",
        cluster="",
        node=node,
        job_id=job,
        actions=("drain",),
        status=status,
        planned_at=NOW - ago,
        fingerprint="f" * 16,
        starts_at=NOW - ago - 60,
        returned_at=NOW - 60 if returned else None,
    )


def state(*responses, **changes):
    return State(responses={each.key: each for each in responses}, **changes)
