"""What the detector has found, as every dashboard shows it: which node, why, since when."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from links import column_to
from parts import (
    DATASOURCE,
    GREEN,
    RED,
    YELLOW,
    Panel,
    count,
    levels,
    name,
    properties,
    rows,
    value_map,
)

# What distinguishes findings; two detectors may publish the same one.
WHO = "cluster, job_id, node, gpu, metric, method"
_SHOWN = 50
_CRITICAL, _OTHERS = ', severity="critical"', ', severity!="critical"'


def annotation(matchers: str) -> builders.AnnotationQuery:
    """Return the findings as events: each a stretch of time while it stands."""
    return (
        builders.AnnotationQuery()
        .name("Findings")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(RED)
        .expr(f"max by (node, gpu, metric, method, severity) (peerwatch_finding{{{matchers}}}) > 0")
        .title_format("{{node}} {{gpu}}")
        .text_format("{{metric}} ({{method}}, {{severity}})")
        .tag_keys("metric,severity")
        .step("10s")
    )


def standing(matchers: str) -> Panel:
    """Return how many nodes have a finding."""
    nodes = f"max by (cluster, job_id, node) (peerwatch_finding{{{matchers}}}) > 0"
    return count(
        "Faulty nodes",
        "Nodes that the detector flags now. None: all are like their peers. A job that is not "
        "compared is neither.",
        f"count({nodes})",
        f"peerwatch_job_comparable{{{matchers}}} == 1",
    ).no_value("not compared")


def longest(matchers: str) -> Panel:
    """Return which node has the oldest finding, in which training job, and for how long."""
    began = f"min by (job_id, node) (peerwatch_finding_start_timestamp_seconds{{{matchers}}})"
    return (
        name(
            "Which node, for how long",
            "The node whose finding stands longest, and its training job: likely the cause of "
            "later ones.",
            "s",
            f"topk(1, time() - {began})",
            "{{node}} in job {{job_id}}",
        )
        .no_value("no finding")
        .thresholds(levels(RED))
        .span(6)
    )


def table(matchers: str) -> Panel:
    """Return the findings that stand, critical ones first, then the latest, with the reason."""
    start = f"max by ({WHO}, severity) (peerwatch_finding_start_timestamp_seconds{{{matchers}}})"
    # Two detectors put the same finding into different words: either will do.
    info = f"topk by ({WHO}) (1, peerwatch_finding_info{{{matchers}}})"
    # Critical ones before all others, however many warnings came later.
    latest = (
        f"(topk({_SHOWN}, {start.replace('{' + matchers, '{' + matchers + _CRITICAL)})"
        f" or topk({_SHOWN}, {start.replace('{' + matchers, '{' + matchers + _OTHERS)}))"
    )
    explained = (
        f"({latest} * on ({WHO}) group_left (family, summary) {info} or on ({WHO}) {latest})"
    )
    columns = {
        "severity": "Severity",
        "cluster": "Cluster",
        "job_id": "Job",
        "node": "Node",
        "gpu": "GPU",
        "metric": "Metric",
        "summary": "Why",
        "family": "Likely",
        "method": "Method",
        "Value #A": "Since",
        "Value #B": "For",
    }
    # Grafana's dates are in milliseconds.
    panel = rows(
        "Findings",
        f"What stands against which node, since when, and why: critical ones first, "
        f"then warnings; the latest {_SHOWN} of each.",
        columns,
        f"{explained} * 1000",
        f"time() - {explained}",
    )
    return (
        panel.no_value("No finding stands.")
        .sort_by(
            [
                common.TableSortByFieldState().display_name("Severity").desc(False),
                common.TableSortByFieldState().display_name("For").desc(False),
            ]
        )
        .height(5)
        .override_by_name("Since", properties({"unit": "dateTimeAsIso", "custom.width": 160}))
        .override_by_name("For", properties({"unit": "s", "decimals": 0, "custom.width": 90}))
        .override_by_name("Severity", severity())
        .override_by_name("Why", properties({"custom.minWidth": 320}))
        .override_by_name("Job", column_to("job", job_id="Job", node="Node"))
        .override_by_name("Node", column_to("node", job_id="Job", node="Node"))
    )


def severity() -> list[models.DynamicConfigValue]:
    """Return the override that colours a column of severities."""
    return properties(
        {
            "mappings": value_map(("critical", "critical", RED), ("warning", "warning", YELLOW)),
            "custom.cellOptions": {"type": "color-text"},
            "custom.width": 90,
        }
    )


def words(bad: str = YELLOW) -> list[models.ValueMapping]:
    """Return yes for 1 and no for 0."""
    return value_map(("1", "yes", GREEN), ("0", "no", bad))
