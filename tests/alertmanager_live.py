"""A real Alertmanager with shortened timers, and a webhook receiver that counts what it sends."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from peerwatch_demo.stack.servers import Stack, free_ports
from peerwatch_demo.stack.servers import alertmanager as stack_alertmanager
from peerwatch_demo.stack.webhook import WebhookReceiver

_TIMERS = ("group_wait", "group_interval", "repeat_interval")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(duration: str) -> float:
    """Return a Prometheus duration such as ``1m30s`` in seconds."""
    parts = re.findall(r"(\d+)(ms|[smh])", duration)
    assert "".join(number + unit for number, unit in parts) == duration, duration
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def scaled(config: dict[str, Any], speed: float, webhook: str) -> dict[str, Any]:
    """Return the configuration with timers ``speed`` times as fast and the webhook's address."""
    config = deepcopy(config)
    routes = [config["route"]]
    while routes:
        route = routes.pop()
        routes += route.get("routes", [])
        for timer in _TIMERS:
            if timer in route:
                route[timer] = f"{round(seconds(route[timer]) / speed * 1000)}ms"
    for receiver in config["receivers"]:
        for hook in receiver.get("webhook_configs", []):
            hook["url"] = webhook + "/" + hook["url"].rsplit("/", 1)[1]
    return config


@dataclass(frozen=True)
class Alertmanager:
    """A running Alertmanager, and the receiver of all its webhooks."""

    url: str
    receiver: WebhookReceiver

    def count(self, path: str, status: str = "firing", **labels: str) -> int:
        """Return how many notifications whose alerts all have these labels came to ``path``."""
        return sum(
            status == sent.status
            and all(labels.items() <= alert.labels.items() for alert in sent.alerts)
            for sent in self.receiver.notifications(path)
        )

    def post(self, *alerts: dict[str, str], resolved: bool = False) -> None:
        """Send alerts (their labels) as Prometheus does; ``resolved`` ends them now."""
        now = datetime.now(UTC)
        ends = now if resolved else now + timedelta(minutes=5)
        starts = now - timedelta(seconds=1) if resolved else now
        body = [
            {"labels": labels, "startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
            for labels in alerts
        ]
        request = urllib.request.Request(
            self.url + "/api/v2/alerts",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            assert answer.status == 200


@contextmanager
def alertmanager(config: dict[str, Any], folder: Path, speed: float) -> Iterator[Alertmanager]:
    """Run Alertmanager with ``config``, its timers ``speed`` times as fast."""
    with WebhookReceiver() as receiver, Stack(folder) as stack:
        text = json.dumps(scaled(config, speed, receiver.url))  # JSON is YAML
        server = stack_alertmanager(stack, free_ports(1)[0], text)
        yield Alertmanager(server.url, receiver)
