"""The alerts that fire, as the rules of Peerwatch raise them."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common as builders

import findings
from links import column_to
from parts import GREEN, RED, YELLOW, Panel, levels, number, properties, rows, value_map

_SHOWN = 50
_RUNBOOKS = "https://github.com/peerwatch/peerwatch/blob/main/docs/runbooks"
_OURS = 'alertname=~"Peerwatch.+"'


def about_job(job: str, cluster: str, members: str) -> str:
    """Return the label matchers, in braces, of a job's alerts and of those about its nodes.

    Parameters
    ----------
    job, cluster
        Label matchers of the job, and of its cluster.
    members
        Series of the nodes of the job.
    """
    return f"ALERTS{{{job}, $}} or ALERTS{{{cluster}, $}} and on (cluster, node) {members}"


def about(matchers: str) -> str:
    """Return the alerts with some labels; ``$`` stands for what narrows them."""
    return f"ALERTS{{{matchers}, $}}"


def counts(scope: str, seen: str) -> list[Panel]:
    """Return how many alerts fire that page, and how many that make a ticket.

    Parameters
    ----------
    scope
        As ``about`` returns it.
    seen
        Series that exist while the rules are evaluated.
    """
    return [
        _count("Critical alerts", "Alerts that page and fire now.", "critical", RED, scope, seen),
        _count(
            "Warnings", "Alerts that make a ticket and fire now.", "warning", YELLOW, scope, seen
        ),
    ]


def _count(title: str, description: str, severity: str, bad: str, scope: str, seen: str) -> Panel:
    firing = _narrowed(scope, f'severity="{severity}", alertstate="firing"')
    return (
        number(title, description, "short", f"count({firing}) or 0 * count({seen})")
        .mappings(value_map(("0", "none", GREEN)))
        .thresholds(levels(GREEN, (1, bad)))
        .span(3)
    )


def _narrowed(scope: str, matchers: str) -> str:
    return scope.replace("$}", f"{_OURS}, {matchers}}}")


def firing(scope: str) -> Panel:
    """Return a table of the alerts that fire, the critical ones first, then the newest.

    Parameters
    ----------
    scope
        As ``about`` returns it.
    """
    by = "alertname, severity, role, cluster, job_id, node"

    def newest(severity: str) -> str:
        fires = _narrowed(scope, f'severity="{severity}", alertstate="firing"')
        began = _narrowed(scope, f'severity="{severity}"').replace("ALERTS{", "ALERTS_FOR_STATE{")
        return f"bottomk({_SHOWN}, time() - max by ({by}) ({began}) and on ({by}) ({fires}))"

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
            "What fires now: critical ones, which page, come first, then warnings, which make a "
            f"ticket; the {_SHOWN} newest of each. A cause names what is broken, a symptom "
            "suffers. Click an alert for its runbook.",
            columns,
            f"{newest('critical')} or {newest('warning')}",
        )
        .no_value("No alert fires.")
        .sort_by(
            [
                builders.TableSortByFieldState().display_name("Severity").desc(False),
                builders.TableSortByFieldState().display_name("For").desc(False),
            ]
        )
        .height(5)
        .override_by_name("Severity", findings.severity())
        .override_by_name("Alert", properties({"links": [runbook]}))
        .override_by_name("Job", column_to("job", job_id="Job", node="Node"))
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
        .override_by_name("For", properties({"unit": "s", "decimals": 0, "custom.width": 90}))
    )
