"""Where else to look: dashboards at the time of the incident, runbooks, queries in Prometheus."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import ABSENT
from peerwatch_detector.web.incident.gather import Incident

_JOB, _NODE = "/d/peerwatch-job", "/d/peerwatch-node"


def links_of(found: Incident, config: DetectorConfig) -> list[tuple[str, str]]:
    """Return texts and addresses; those of programs whose address is not set are left out."""
    links = []
    if grafana := config.links.grafana:
        span = {"from": f"{found.start * 1000:.0f}", "to": f"{found.end * 1000:.0f}"}
        job = urlencode({"var-job_id": found.address.job_id, **span})
        links.append(("Grafana: the job", f"{grafana.rstrip('/')}{_JOB}?{job}"))
        if found.node:
            node = urlencode({"var-node": found.node, **span})
            links.append((f"Grafana: {found.node}", f"{grafana.rstrip('/')}{_NODE}?{node}"))
    base = config.links.runbooks
    links += [(f"Runbook: {name}", runbook(base, name)) for name in runbooks(found)]
    if config.links.responder:
        links.append(("Responder", config.links.responder))
    return links


def runbook(base: str, alert: str) -> str:
    """Return the address of an alert's runbook in the folder at ``base``."""
    return f"{base.rstrip('/')}/{quote(alert, safe='')}.md"


def runbooks(found: Incident) -> tuple[str, ...]:
    """Return the alerts of which a runbook says what to do; those that fired, if any did."""
    fired = tuple(name for name in found.facts.alerts if name.startswith("Peerwatch"))
    if fired:
        return fired
    if any(each.metric == ABSENT for each in found.facts.findings):
        return ("PeerwatchNodeAbsent",)
    return ("PeerwatchFaultyNode",) if found.facts.findings else ()


def prometheus_graph(query: str, found: Incident, config: DetectorConfig) -> str:
    """Return the address of a query's graph over the incident; empty if there is no link."""
    if not config.links.prometheus:
        return ""
    asked = {
        "g0.expr": query,
        "g0.tab": "0",
        "g0.range_input": f"{max(60.0, found.end - found.start):.0f}s",
        "g0.end_input": f"{found.end:.0f}",
    }
    return f"{config.links.prometheus.rstrip('/')}/graph?{urlencode(asked)}"
