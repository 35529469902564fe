"""Which alerts there are and what became of each: paged, silenced by what, or still waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peerwatch_demo.stack.webhook import Notification

# What a receiver of the shipped routing means, where nothing was sent yet.
_ROUTES = {
    "pager": "will page when its group's time to wait is over",
    "ticket": "becomes a ticket when its group's time to wait is over",
    "heartbeat": "the sign of life; comes all the time",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """One alert and its fate.

    Parameters
    ----------
    name, severity, role
        As in the rules.
    where
        The node, else the training job, else empty.
    summary
        The annotation.
    fate
        What became of it, in words.
    """

    name: str
    severity: str
    role: str
    where: str
    summary: str
    fate: str


def explain(
    alerts: Sequence[Mapping[str, Any]],
    rules: Mapping[str, Any],
    notifications: Sequence[Notification],
) -> list[Explained]:
    """Return every alert with its fate: those that fire, then those that wait.

    Parameters
    ----------
    alerts
        Alertmanager's answer to ``/api/v2/alerts``.
    rules
        The data of Prometheus' answer to ``/api/v1/rules``.
    notifications
        What the receivers were sent.
    """
    by_fingerprint = {alert["fingerprint"]: alert for alert in alerts}
    sent = {
        (notification.path.strip("/"), frozenset(alert.labels.items()))
        for notification in notifications
        for alert in notification.firing()
    }
    fired = [
        _explained(alert["labels"], alert["annotations"], _fate(alert, by_fingerprint, sent))
        for alert in alerts
    ]
    pending = [
        _explained(alert["labels"], alert["annotations"], _wait(float(rule["duration"])))
        for group in rules["groups"]
        for rule in group["rules"]
        for alert in rule.get("alerts", ())
        if alert["state"] == "pending"
    ]
    return [*sorted(fired, key=_order), *sorted(pending, key=_order)]


def text(explained: Iterable[Explained]) -> str:
    """Return the alerts as a person reads them; alike ones of several nodes together."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    for alert in explained:
        key = (alert.name, alert.severity, alert.role, alert.summary, alert.fate)
        places = nodes.setdefault(key, [])
        if alert.where and alert.where not in places:
            places.append(alert.where)
    lines = []
    for (name, severity, role, summary, fate), places in nodes.items():
        lines.append(f"{name}  {severity} {role}{_on(places)}")
        lines += [f"    why   {summary}", f"    then  {fate}"]
    return "\n".join(lines)


def _explained(labels: Mapping[str, str], annotations: Mapping[str, str], fate: str) -> Explained:
    return Explained(
        labels["alertname"],
        labels.get("severity", ""),
        labels.get("role", ""),
        labels.get("node") or labels.get("job_id", ""),
        " ".join(annotations.get("summary", "").split()),
        fate,
    )


def _fate(
    alert: Mapping[str, Any],
    by_fingerprint: Mapping[str, Mapping[str, Any]],
    sent: set[tuple[str, frozenset[tuple[str, str]]]],
) -> str:
    causes = [by_fingerprint.get(cause) for cause in alert["status"]["inhibitedBy"]]
    if causes:
        names = sorted({_flagged(cause) for cause in causes if cause is not None})
        return f"silenced by {', '.join(names) or 'an alert that is gone'}"
    receiver = alert["receivers"][0]["name"]
    path = {"pager": "page"}.get(receiver, receiver)
    if (path, frozenset(alert["labels"].items())) in sent:
        return {"page": "PAGED", "ticket": "a ticket"}.get(path, _ROUTES["heartbeat"])
    return _ROUTES.get(receiver, f"goes to {receiver}")


def _flagged(cause: Mapping[str, Any]) -> str:
    labels = cause["labels"]
    return f"{labels['alertname']}{_on([labels['node']] if 'node' in labels else [])}"


def _wait(seconds: float) -> str:
    return f"pending: fires when it has lasted {seconds / 60:g} min"


def _on(places: Sequence[str]) -> str:
    if len(places) > 3:
        return f" on {places[0]} and {len(places) - 1} more"
    return f" on {', '.join(places)}" if places else ""


def _order(alert: Explained) -> tuple[bool, bool, bool, str, str]:
    return (
        alert.fate != "PAGED",
        alert.severity != "critical",
        alert.role != "cause",
        alert.name,
        alert.where,
    )
