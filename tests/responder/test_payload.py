"""What Alertmanager posts is read exactly; what is not understood is refused whole."""

from __future__ import annotations

import itertools
import json

import pytest

from peerwatch_responder.webhook.payload import MAX_BYTES, PayloadError, parse

# As Alertmanager 0.25 writes it, shortened.
ALERT = {
    "status": "firing",
    "labels": {"alertname": "PeerwatchFaultyNode", "job_id": "4711", "node": "gpu-017"},
    "annotations": {"summary": "A node differs."},
    "startsAt": "2026-11-23T10:15:30.123456789Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus:9090/graph?g0.expr=up",
    "fingerprint": "b5eb4d4d7d1c4bd2",
}
PAYLOAD = {
    "receiver": "responder",
    "status": "firing",
    "alerts": [ALERT],
    "groupLabels": {"node": "gpu-017"},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager:9093",
    "version": "4",
    "groupKey": '{}/{role="cause"}:{node="gpu-017"}',
    "truncatedAlerts": 0,
}


def body(alert=None, **changes):
    alerts = [{**ALERT, **(alert or {})}]
    return json.dumps({**PAYLOAD, "alerts": alerts, **changes}).encode()


def test_a_firing_alert():
    (alert,) = parse(body())
    assert (alert.name, alert.node, alert.job_id, alert.cluster) == (
        *("PeerwatchFaultyNode", "gpu-017", "4711", ""),
    )
    assert alert.starts_at == pytest.approx(1795428930.123456, abs=1e-6)
    assert alert.is_firing
    assert alert.fingerprint == "b5eb4d4d7d1c4bd2"
    assert alert.annotations == {"summary": "A node differs."}


def test_a_resolved_alert():
    (alert,) = parse(body({"status": "resolved", "endsAt": "2026-11-23T11:15:30+01:00"}))
    assert not alert.is_firing
    assert alert.ends_at == 1795428930.0


def test_fields_of_newer_versions_are_no_reason_to_refuse():
    assert len(parse(body({"extra": 1}, notification_reason="new"))) == 1


def test_a_key_is_of_one_firing_of_one_alert_and_its_answer():
    (alert,) = parse(body())
    (resolved,) = parse(body({"status": "resolved", "endsAt": "2026-11-23T11:15:30Z"}))
    (again,) = parse(body({"startsAt": "2026-11-23T12:00:00Z"}))
    assert alert.key(("drain",)) == resolved.key(("drain",))
    assert len({each.key(("drain",)) for each in (alert, again)}) == 2
    assert alert.key(("drain",)) != alert.key(("drain", "requeue"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 200_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"alerts": []}', "version None"),
        (body(version="5"), "version '5'"),
        (body(version=4), "version 4;"),
        (body(truncatedAlerts=3), "max_alerts"),
        (body(truncatedAlerts="0"), "truncatedAlerts"),
        (body(alerts=None), "no list of alerts"),
        (body(alerts=[ALERT, 1]), r"alerts\[1\] is no JSON object"),
        (body(alerts=[1] * 4097), "4097 alerts"),
        (body({"status": "suppressed"}), r"alerts\[0\].status is 'suppressed'"),
        (body({"status": ["firing"]}), r"status is \['firing'\]"),
        (body({"fingerprint": None}), "fingerprint is None"),
        (body({"fingerprint": "a\nb"}), r"fingerprint is 'a\\n"),
        (body({"labels": {"node": 7}}), "labels is no JSON object of texts"),
        (body({"labels": None}), "labels is no JSON object of texts"),
        (body({"labels": {"node": "n" * 1025}}), "longer than 1024 bytes"),
        (body({"labels": {f"l{each}": "" for each in range(65)}}), "65 entries"),
        (body({"labels": {"node": "\ud800"}}), "half a character"),
        (body({"labels": {"\ud800": "n"}}), "half a character"),
        (body({"annotations": []}), "annotations is no JSON object of texts"),
        (body({"startsAt": "0001-01-01T00:00:00Z"}), "startsAt is '0001"),
        (body({"startsAt": "2026-11-23T10:15:30"}), "without a zone"),
        (body({"startsAt": "yesterday"}), "startsAt is 'yesterday', not a time"),
        (body({"startsAt": 1795428930}), "startsAt is 1795428930, not a time"),
        (body({"status": "resolved"}), "endsAt is '0001"),
        (b" " * (MAX_BYTES + 1), "1048576 are read"),
    ],
    # The contents are long.
    ids=itertools.count(),
)
def test_what_is_not_understood_is_refused_with_a_reason(content, message):
    with pytest.raises(PayloadError, match=message) as raised:
        parse(content)
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()
