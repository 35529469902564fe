"""Beside the inhibitions of kube-prometheus-stack no alert of ours is lost."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import yaml

from alert_labels import config
from alertmanager_live import alertmanager
from helm_chart import ROOT

if TYPE_CHECKING:
    from pathlib import Path

OURS = 'alertname!~"Peerwatch.+"'
PORT = {"alertname": "PeerwatchNicLinkDown", "role": "cause", "component": "nic"}
SENT = [
    PORT | {"severity": "critical", "node": "n1", "job_id": "7"},
    PORT | {"severity": "warning", "node": "n2"},
    {"alertname": "PeerwatchWatchdog", "severity": "info", "role": "meta"},
    # As the stack makes it of any alert of severity info, with its namespace if it has one.
    {"alertname": "InfoInhibitor", "severity": "none"},
    {"alertname": "CPUThrottlingHigh", "severity": "info"},
]


def in_the_document() -> list[dict[str, Any]]:
    """Return the inhibitions of the stack as docs/install.md has them."""
    document = (ROOT / "docs" / "install.md").read_text()
    (block,) = re.findall(
        r"```yaml\n# values of kube-prometheus-stack.*?\n(.*?)```", document, re.DOTALL
    )
    rules: list[dict[str, Any]] = yaml.safe_load(block)["inhibit_rules"]
    return rules


def silenced(rules: list[dict[str, Any]], folder: Path) -> set[str]:
    """Return what is inhibited, as name and node, by the example's rules and others."""
    settings = deepcopy(config())
    settings["inhibit_rules"] += rules
    found: set[str] = set()
    with alertmanager(settings, folder, speed=1) as server:
        server.post(*SENT)
        until = time.monotonic() + 60
        # Alertmanager takes alerts in their order, but after its answer: the last one comes last.
        while "CPUThrottlingHigh" not in found and time.monotonic() < until:
            with urllib.request.urlopen(server.url + "/api/v2/alerts", timeout=60) as answer:
                alerts = json.load(answer)
            found = {
                f"{alert['labels']['alertname']} {alert['labels'].get('node', '')}".strip()
                for alert in alerts
                if alert["status"]["inhibitedBy"]
            }
    return found


def test_the_inhibitions_in_the_document_leave_our_alerts_alone(tmp_path: Path) -> None:
    rules = in_the_document()
    stacks = deepcopy(rules)
    for rule in stacks:
        rule["target_matchers"].remove(OURS)

    assert {"CPUThrottlingHigh"} == silenced(rules, tmp_path / "document")
    # What the document warns of.
    assert {"CPUThrottlingHigh", "PeerwatchNicLinkDown n2", "PeerwatchWatchdog"} == silenced(
        stacks, tmp_path / "stack"
    )
