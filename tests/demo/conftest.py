"""What Alertmanager sends, for several tests of the demo."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest


@pytest.fixture
def message() -> Callable[..., bytes]:
    """Return a maker of webhook bodies: overall status, then the nodes of its alerts."""
    return webhook_body


def webhook_body(status: str, *nodes: str, alert_status: str = "firing") -> bytes:
    alerts = [
        {
            "status": alert_status,
            "labels": {"alertname": "PeerwatchFaultyNode", "node": node},
            "annotations": {"summary": "A node differs."},
        }
        for node in nodes
    ]
    return json.dumps(
        {"status": status, "groupLabels": {"job_id": "j"}, "alerts": alerts, "version": "4"}
    ).encode()
