"""The tables inside documents that are otherwise written by hand."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import yaml
from tables import cell

from peerwatch_detector.config import load_preset
from peerwatch_detector.config.preset import PresetMetric
from peerwatch_detector.service.catalog import SPECS as DETECTOR
from peerwatch_exporter.catalog.config_keys import FILE_KEYS, MODULES, SYSCTLS
from peerwatch_exporter.collector import all_metrics, registrations
from peerwatch_reliability.run.metrics import SPECS as RELIABILITY
from peerwatch_responder.retry.metrics import SPECS as RETRY
from peerwatch_responder.run.metrics import SPECS as RESPONDER

RULES = Path(__file__).resolve().parents[1] / "rules"
# The order of the document: from what pages most to what watches the monitoring.
_ALERT_FILES = (
    "shared",
    "node",
    "gpu",
    "machine",
    "fabric",
    "job",
    "meta",
    "responder",
    "reliability",
)


def alert_rows() -> list[str]:
    """Return a row for each alert of the rules; one of two severities is one row."""
    files = [path.name.split(".")[0] for path in RULES.glob("*.rules.yaml")]
    ordered = [*_ALERT_FILES, *sorted(set(files) - set(_ALERT_FILES))]
    rules = [
        rule
        for name in ordered
        for group in yaml.safe_load((RULES / f"{name}.rules.yaml").read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    rows = ["| alert | severity | role | says |", "|---|---|---|---|"]
    for name, same in groupby(rules, key=lambda rule: str(rule["alert"])):
        variants = list(same)
        severities = [variant["labels"]["severity"] for variant in variants]
        # The second rule of an alert is the one without a training job on the node, or about checks
        # that do not take a node out.
        by_check = 'severity="high"' in variants[0]["expr"]
        severity = f" {'for high' if by_check else 'with a job'}, else ".join(severities)
        summary = variants[0]["annotations"]["summary"].removesuffix(".")
        role = variants[0]["labels"]["role"]
        rows.append(f"| [{name}](runbooks/{name}.md) | {severity} | {role} | {cell(summary)} |")
    return rows


def check_rows() -> list[str]:
    """Return what to check on a node by metric; metrics with the same advice share a row."""
    by_advice: dict[tuple[str, str], list[PresetMetric]] = {}
    for metric in load_preset("peerwatch").metrics:
        by_advice.setdefault((metric.check, metric.commands), []).append(metric)
    rows = ["| metric | check | with |", "|---|---|---|"]
    for (check, commands), metrics in by_advice.items():
        names = ", ".join(metric.name for metric in metrics)
        rows.append(f"| {names} | {cell(check)} | {cell(commands)} |")
    rows.append("| (absent) | power, network, kernel | `ping NODE`, console, BMC event log |")
    return rows


def collector_rows() -> list[str]:
    """Return a row for each collector: what it reads, and how often."""
    rows = ["| name | what | every |", "|---|---|---|"]
    for name, collector in registrations().items():
        summary = cell(collector.summary).removesuffix(".")
        rows.append(
            f"| `{name}` | {summary[0].upper()}{summary[1:]} | {collector.interval_seconds:g} s |"
        )
    return rows


def config_key_rows() -> list[str]:
    """Return a row for each key of a node's configuration that stands in a table."""
    keys = [
        *((entry.key, entry.path, entry.why) for entry in FILE_KEYS),
        *((f"sysctl.{each.name}", "/proc/sys", each.why) for each in SYSCTLS),
        *((f"module.{each.name}", "/sys/module", each.why) for each in MODULES),
    ]
    rows = ["| key | from | what it changes |", "|---|---|---|"]
    return rows + [
        f"| `{key}` | /{path.removeprefix('/')} | {cell(why)} |" for key, path, why in keys
    ]


def not_drawn_rows() -> list[str]:
    """Return a row for each metric that no dashboard and no rule uses, with the reason."""
    specs = [*all_metrics().values(), *DETECTOR, *RESPONDER, *RETRY, *RELIABILITY]
    reasons = sorted((spec.name, cell(spec.not_drawn)) for spec in specs if spec.not_drawn)
    return ["| metric | why |", "|---|---|", *(f"| `{name}` | {why} |" for name, why in reasons)]
