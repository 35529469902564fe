"""Alerts of the pack as Alertmanager gets them, and the shipped configuration that routes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yaml_files import read_yaml

CONFIG = Path(__file__).resolve().parents[1] / "rules" / "alertmanager.example.yaml"

NODE = {"role": "cause", "component": "node"}
FINDING = {"alertname": "PeerwatchFaultyNode", "severity": "critical", **NODE}
ABSENT = {"alertname": "PeerwatchNodeAbsent", "severity": "critical", **NODE}
PORT_DOWN = {
    "alertname": "PeerwatchNicLinkDown",
    "severity": "critical",
    "role": "cause",
    "component": "nic",
}
SHARED = {"alertname": "PeerwatchSharedCause", "severity": "critical", **NODE}
SHARED_NODE = {"alertname": "PeerwatchSharedCauseNode", "severity": "info", "role": "meta"}
EXPORTER_DOWN = {
    "alertname": "PeerwatchExporterDown",
    "severity": "warning",
    "role": "meta",
    "component": "exporter",
}
SLOWS_JOB = {"alertname": "PeerwatchNodeSlowsJob", "severity": "critical", **NODE}
SUSPECT = {"alertname": "PeerwatchSuspectNode", "severity": "warning", **NODE}
GPU = {"role": "cause", "component": "gpu"}
XID = {"alertname": "PeerwatchXidHardware", "severity": "critical", **GPU}
IDLE_XID = {"alertname": "PeerwatchXidHardware", "severity": "warning", **GPU}
MISSING = {"alertname": "PeerwatchGpuMissing", "severity": "critical", **GPU}
IDLE_MISSING = {"alertname": "PeerwatchGpuMissing", "severity": "warning", **GPU}
THROTTLED = {
    "alertname": "PeerwatchGpuThermalThrottling",
    "severity": "warning",
    "role": "symptom",
    "component": "gpu",
}
JOB_SLOW = {
    "alertname": "PeerwatchJobSlow",
    "severity": "warning",
    "role": "symptom",
    "component": "job",
}
STOPPED = {
    "alertname": "PeerwatchRdmaStoppedJob",
    "severity": "critical",
    "role": "symptom",
    "component": "job",
}
NO_EXPORTERS = {
    "alertname": "PeerwatchNoExporters",
    "severity": "critical",
    "role": "meta",
    "component": "exporter",
}
STALE_EXPORTER = {
    "alertname": "PeerwatchExporterStale",
    "severity": "warning",
    "role": "meta",
    "component": "exporter",
}
SYMPTOM = {"alertname": "PeerwatchCoverageLow", "severity": "warning", "role": "symptom"}
STALLED = {"alertname": "TrainingStalled", "severity": "critical", "role": "symptom"}
META = {"role": "meta", "component": "detector"}
READS_FAILING = {"alertname": "PeerwatchDetectorReadsFailing", "severity": "critical", **META}
STALE = {"alertname": "PeerwatchDetectorStale", "severity": "warning", **META}
WATCHDOG = {"alertname": "PeerwatchWatchdog", "severity": "info", "role": "meta"}

Labels = dict[str, str]


def on(alert: Labels, job_id: str, node: str = "", metric: str = "") -> Labels:
    """Return the alert about a job, a node, a metric; empty labels are left out."""
    where = {"job_id": job_id, "node": node, "metric": metric}
    return alert | {name: value for name, value in where.items() if value}


def in_place(alert: Labels, kind: str, level: str = "cluster", place: str = "") -> Labels:
    """Return the alert about the nodes of a place that fail in one way."""
    return alert | {"kind": kind, "level": level} | ({"place": place} if place else {})


def shared(
    kind: str, component: str, nodes: list[str], level: str = "cluster", place: str = ""
) -> list[Labels]:
    """Return the alerts about a cause that nodes share: the page, and what holds theirs back."""
    member = in_place(SHARED_NODE | {"component": component}, kind, level, place)
    return [in_place(SHARED, kind, level, place), *(on(member, "", node) for node in nodes)]


def config() -> dict[str, Any]:
    """Return the shipped configuration."""
    return read_yaml(CONFIG)
