"""Starts what watches the recorded fleet: Alertmanager, detector, responder, reliability."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import history
import yaml

from peerwatch_demo.response.cluster import with_responder
from peerwatch_demo.stack.process import free_ports
from peerwatch_demo.stack.servers import (
    Server,
    Stack,
    Target,
    alertmanager,
    alertmanager_config,
)
from peerwatch_demo.stack.webhook import WebhookReceiver

_EXAMPLE = Path(__file__).resolve().parents[2] / "rules/alertmanager.example.yaml"
# Named on pictures, never asked.
_GRAFANA, _PROMETHEUS = "https://grafana.example.com", "https://prometheus.example.com"


class Inbox(WebhookReceiver):
    """Takes Alertmanager's notifications, and keeps pages as they came: its templates need all."""

    def __init__(self) -> None:
        self.pages_sent: list[dict[str, Any]] = []
        super().__init__()

    def record(self, path: str, body: bytes) -> None:
        """Keep one notification."""
        super().record(path, body)
        if path == "/page":
            self.pages_sent.append(json.loads(body))


class Programs:
    """Everything beside exporters and Prometheus, at ports that are known before they start.

    Parameters
    ----------
    stack
        Takes them down again.
    cluster
        The label that Prometheus gives their series.
    """

    def __init__(self, stack: Stack, cluster: str) -> None:
        self._stack, self._cluster = stack, cluster
        self._token = secrets.token_hex(16)
        ports = free_ports(4)
        self._ports = dict(
            zip(("alertmanager", "detector", "responder", "reliability"), ports, strict=True)
        )
        self.detector_url = f"http://127.0.0.1:{self._ports['detector']}"

    def targets(self) -> list[Target]:
        """Return what Prometheus scrapes of them."""
        return [
            Target(
                f"peerwatch-{name}", f"127.0.0.1:{self._ports[name]}", {"cluster": self._cluster}
            )
            for name in ("detector", "responder", "reliability")
        ]

    def start_alertmanager(self, inbox: Inbox) -> Server:
        """Start Alertmanager as it is shipped, with a route to the responder."""
        config = alertmanager_config(_EXAMPLE, inbox.url)
        hook = f"http://127.0.0.1:{self._ports['responder']}/api/v1/alerts"
        return alertmanager(
            self._stack, self._ports["alertmanager"], with_responder(config, hook, self._token)
        )

    def start_detector(self, prometheus: str) -> None:
        """Start the detector with its defaults, and pictures in notifications."""
        key = self._file("pictures.key", secrets.token_hex(32))
        settings = {
            "prometheus": {"url": prometheus},
            "cycle_seconds": 5,
            "web": {"pictures": {"key_file": str(key), "address": self.detector_url}},
            "links": {"grafana": _GRAFANA, "prometheus": _PROMETHEUS},
        }
        self._start("detector", settings, "/-/healthy")

    def start_responder(self, prometheus: str, notifier: str) -> None:
        """Start the responder, which decides and, as by default, does nothing."""
        driver = {"type": "driver_http", "url": "http://127.0.0.1:1/orders"}
        rule = {
            "name": "replace a faulty node",
            "match": {"alertname": "PeerwatchFaultyNode", "severity": "critical"},
            "do": ["checkpoint", "replace"],
        }
        settings = {
            "journal": str(self._stack.directory / "journal.jsonl"),
            "web": {"token_file": str(self._file("responder.token", self._token))},
            "alertmanager": {"url": notifier},
            "prometheus": {"url": prometheus},
            "policy": {"rules": [rule]},
            "actions": {
                "checkpoint": driver | {"want": "checkpoint"},
                "replace": driver | {"want": "replace"},
            },
        }
        self._start("responder", settings, "/-/ready")

    def start_reliability(self, nodes: list[str]) -> None:
        """Start the books, over four weeks of accounting that are drawn by lot."""
        folder = self._stack.directory / "slurm"
        history.write(folder, nodes)
        settings = {
            "window_days": history.DAYS,
            "nodes": len(nodes),
            "interval_seconds": 60,
            "slurm": {"folder": str(folder)},
            # Of so few nodes one is enough.
            "lemons": {"largest_share": 1 / len(nodes)},
        }
        self._start("reliability", settings, "/-/healthy")

    def _start(self, name: str, settings: Mapping[str, Any], ready: str) -> None:
        port = self._ports[name]
        listen = {"listen": {"address": "127.0.0.1", "port": port}}
        path = self._file(f"{name}.yaml", yaml.safe_dump({**settings, **listen}))
        self._stack.start(
            name,
            [sys.executable, "-m", f"peerwatch_{name}", "run", "--config", str(path)],
            ready=f"http://127.0.0.1:{port}{ready}",
        )

    def _file(self, name: str, text: str) -> Path:
        path = self._stack.directory / name
        path.write_text(text)
        path.chmod(0o600)
        return path
