"""Every alert is told with what became of it."""

from __future__ import annotations

from peerwatch_demo.fleet.alerts import Explained, explain, text
from peerwatch_demo.stack.webhook import Alert, Notification

FAULTY = {
    "alertname": "PeerwatchFaultyNode",
    "severity": "critical",
    "role": "cause",
    "node": "gpu-2",
    "job_id": "llm",
}
LINK = {"alertname": "PeerwatchNicLinkFlap", "severity": "warning", "role": "symptom"}
NOBODY = {"groups": []}


def active(fingerprint, labels, receiver, by=()):
    return {
        "fingerprint": fingerprint,
        "labels": labels,
        "annotations": {"summary": f"Why\n {fingerprint}."},
        "receivers": [{"name": receiver}],
        "status": {"state": "suppressed" if by else "active", "inhibitedBy": list(by)},
    }


def sent(path, labels):
    return Notification(path, 1.0, "firing", {}, (Alert("firing", labels, {}),))


def pending(labels, seconds):
    alert = {"labels": labels, "annotations": {"summary": "Later."}, "state": "pending"}
    firing = {**alert, "state": "firing"}
    return {"groups": [{"rules": [{"duration": seconds, "alerts": [alert, firing]}]}]}


def test_a_paged_alert_comes_first_with_its_reason() -> None:
    alerts = [active("b", LINK, "ticket"), active("a", FAULTY, "pager")]

    first, second = explain(alerts, NOBODY, [sent("/page", FAULTY)])

    assert (
        Explained("PeerwatchFaultyNode", "critical", "cause", "gpu-2", "Why a.", "PAGED") == first
    )
    assert "becomes a ticket when its group's time to wait is over" == second.fate


def test_a_silenced_alert_names_its_cause_and_node() -> None:
    alerts = [active("a", FAULTY, "pager"), active("b", LINK, "ticket", by=["a"])]

    _, link = explain(alerts, NOBODY, [sent("/page", FAULTY)])

    assert "silenced by PeerwatchFaultyNode on gpu-2" == link.fate


def test_a_cause_that_is_gone_is_said_to_be() -> None:
    (link,) = explain([active("b", LINK, "ticket", by=["x"])], NOBODY, [])

    assert "silenced by an alert that is gone" == link.fate


def test_an_alert_of_another_node_was_not_paged() -> None:
    (alert,) = explain([active("a", FAULTY, "pager")], NOBODY, [sent("/page", LINK)])

    assert "will page when its group's time to wait is over" == alert.fate


def test_a_resolved_notification_is_no_page() -> None:
    over = Notification("/page", 1.0, "resolved", {}, (Alert("resolved", FAULTY, {}),))

    (alert,) = explain([active("a", FAULTY, "pager")], NOBODY, [over])

    assert "PAGED" != alert.fate


def test_a_ticket_that_was_sent_is_told_as_one() -> None:
    (alert,) = explain([active("b", LINK, "ticket")], NOBODY, [sent("/ticket", LINK)])

    assert "a ticket" == alert.fate


def test_a_pending_alert_says_how_long_it_must_last() -> None:
    (waiting,) = explain([], pending(FAULTY, 300), [])

    assert "pending: fires when it has lasted 5 min" == waiting.fate


def test_alike_alerts_of_many_nodes_are_told_together() -> None:
    labels = [{**LINK, "node": f"gpu-{number}"} for number in range(1, 6)]
    alerts = [active("same", label, "ticket") for label in labels]

    shown = text(explain(alerts, NOBODY, []))

    assert 3 == len(shown.splitlines())
    assert "PeerwatchNicLinkFlap  warning symptom on gpu-1 and 4 more" in shown
    assert "why   Why same." in shown
