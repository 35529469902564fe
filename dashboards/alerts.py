"""The alerts that fire, as the rules of Peerwatch raise them."""

from __future__ import annotations

import findings
from links import column_to
from parts import Panel, properties, rows

_SHOWN = 50
_RUNBOOKS = "https://github.com/peerwatch/peerwatch/blob/main/docs/runbooks"


def firing(matchers: str) -> Panel:
    """Return a table of the alerts that fire, the newest first.

    Parameters
    ----------
    matchers
        Label matchers of what the alerts are about.
    """
    ours = f'{matchers}, alertname=~"Peerwatch.+", severity=~"critical|warning"'
    by = "alertname, severity, role, cluster, job_id, node"
    age = f"time() - max by ({by}) (ALERTS_FOR_STATE{{{ours}}})"
    fires = f'ALERTS{{{ours}, alertstate="firing"}}'
    columns = {
        "severity": "Severity",
        "alertname": "Alert",
        "role": "Role",
        "cluster": "Cluster",
        "job_id": "Job",
        "node": "Node",
        "Value": "For",
    }
    runbook = {"title": "Open the runbook", "url": f"{_RUNBOOKS}/${{__value.raw}}.md"}
    return (
        rows(
            "Alerts",
            f"What fires now, the {_SHOWN} newest: critical ones page, warnings make a ticket. A "
            "cause names what is broken, a symptom suffers. Click an alert for its runbook.",
            columns,
            f"bottomk({_SHOWN}, {age} and on ({by}) {fires})",
        )
        .no_value("No alert fires.")
        .height(5)
        .override_by_name("Severity", findings.severity())
        .override_by_name("Alert", properties({"links": [runbook]}))
        .override_by_name("Job", column_to("job", job_id="Job", node="Node"))
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
        .override_by_name("For", properties({"unit": "s", "decimals": 0, "custom.width": 90}))
    )
