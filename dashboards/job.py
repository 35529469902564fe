"""The training-job dashboard: is the job healthy, which node differs, in what, since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

import detector_health
import evidence
import peers
import ranks
from parts import (
    DATASOURCE,
    GREEN,
    RED,
    YELLOW,
    Panel,
    instant,
    number,
    properties,
    query_variable,
    rows,
    target,
    thresholds,
    value_map,
)

if TYPE_CHECKING:
    from grafana_foundation_sdk.cog.builder import Builder

UID = "peerwatch-job"
JOB = 'cluster=~"$cluster", job_id="$job_id"'
FINDING = "node, gpu, metric, method, severity"


def job_dashboard() -> models.Dashboard:
    """Return the training-job dashboard."""
    dashboard = (
        builders.Dashboard("Peerwatch / Training job")
        .uid(UID)
        .description("One training job: its nodes compared with one another by Peerwatch.")
        .tags(["peerwatch"])
        .readonly()
        .timezone("browser")
        .time("now-30m", "now")
        .refresh("10s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .annotation(_findings())
    )
    for variable in _variables():
        dashboard = dashboard.with_variable(variable)
    sections = {
        "State of the job": _state(),
        "Who differs": evidence.panels(JOB),
        "Node against its peers: $node": peers.panels(JOB),
        "Heartbeats and ranks": ranks.panels(JOB),
        "Detector": detector_health.panels(JOB),
    }
    # Links and diffs need ids that stay: a panel added to one row renumbers no other row.
    ids = []
    for base, (title, panels) in enumerate(sections.items(), start=1):
        dashboard = dashboard.with_row(builders.Row(title))
        for panel in panels:
            dashboard = dashboard.with_panel(panel)
        ids += [100 * base + index for index in range(len(panels) + 1)]
    built = dashboard.build()
    for made, panel_id in zip(built.panels or [], ids, strict=True):
        made.id_val = panel_id
    return built


def _variables() -> list[Builder[models.VariableModel]]:
    every = models.VariableOption(text="All", value="$__all", selected=True)
    return [
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        query_variable(
            "cluster",
            "Cluster",
            "Value of the label cluster; All where there is no such label.",
            "label_values(peerwatch_job_nodes, cluster)",
        )
        .include_all(True)
        .all_value(".*")
        .current(every),
        query_variable(
            "job_id",
            "Training job",
            "Training jobs the detector watches.",
            'label_values(peerwatch_job_nodes{cluster=~"$cluster"}, job_id)',
        ),
        # The worst node comes first, so it is the one shown when nobody has chosen.
        query_variable(
            "node",
            "Node",
            "The node that is drawn against its peers; the list starts with the highest fault "
            "score.",
            f"query_result(sort_desc(max by (node) (peerwatch_fault_score{{{JOB}}})))",
        ).regex('/node="([^"]+)"/'),
    ]


def _findings() -> builders.AnnotationQuery:
    return (
        builders.AnnotationQuery()
        .name("Findings")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(RED)
        .expr(f"max by ({FINDING}) (peerwatch_finding{{{JOB}}}) > 0")
        .title_format("{{node}} {{gpu}}")
        .text_format("{{metric}} ({{method}}, {{severity}})")
        .tag_keys("metric,severity")
        .step("10s")
    )


def _state() -> list[Panel]:
    return [
        number("Nodes", "Nodes of the job that the detector compares.", "short").with_target(
            target(f"max(peerwatch_job_nodes{{{JOB}}})")
        ),
        number(
            "Comparable",
            "No means that the job has too few nodes, or that too many deviate at once (a common "
            "cause): no finding is raised then.",
            "short",
        )
        .mappings(value_map(("1", "yes", GREEN), ("0", "no", YELLOW)))
        .with_target(target(f"min(peerwatch_job_comparable{{{JOB}}})")),
        number("Findings", "Findings that stand now.", "short")
        .thresholds(thresholds((None, GREEN), (1, RED)))
        .with_target(
            target(f"count(max by ({FINDING}) (peerwatch_finding{{{JOB}}}) > 0) or vector(0)")
        ),
        number(
            "Training steps per second",
            "Of the fastest rank, over the last scrapes. 0 means the job stands still.",
            "short",
        )
        .decimals(2)
        .thresholds(thresholds((None, RED), (0.0001, GREEN)))
        .with_target(target(f"max(rate(rank_steps_total{{{JOB}}}[$__rate_interval]))")),
        number(
            "Lowest data coverage",
            "Share of the nodes with fresh samples, in the metric that has the fewest. Metrics "
            "that no node has are left out.",
            "percentunit",
        )
        .thresholds(thresholds((None, RED), (0.8, YELLOW), (1, GREEN)))
        .with_target(target(f"min(peerwatch_data_coverage_ratio{{{JOB}}} > 0)")),
        number("Last judged", "Time since the detector last read and judged this job.", "s")
        .decimals(0)
        .thresholds(thresholds((None, GREEN), (60, YELLOW), (120, RED)))
        .with_target(
            target(f"time() - max(peerwatch_cycle_last_success_timestamp_seconds{{{JOB}}})")
        ),
        _findings_table(),
    ]


def _findings_table() -> Panel:
    start = f"max by ({FINDING}) (peerwatch_finding_start_timestamp_seconds{{{JOB}}})"
    columns = {
        "severity": "Severity",
        "node": "Node",
        "gpu": "GPU",
        "metric": "Metric",
        "method": "Method",
        "Value #A": "Since",
        "Value #B": "For",
    }
    return (
        rows("Findings", "What stands against which node, and since when.", "short", columns)
        .no_value("No finding stands.")
        .height(6)
        .override_by_name("Since", properties({"unit": "dateTimeAsIso"}))
        .override_by_name("For", properties({"unit": "s", "decimals": 0}))
        .override_by_name(
            "Severity",
            properties(
                {
                    "mappings": value_map(
                        ("critical", "critical", RED), ("warning", "warning", YELLOW)
                    ),
                    "custom.cellOptions": {"type": "color-text"},
                }
            ),
        )
        # Grafana's dates are in milliseconds.
        .with_target(instant(f"{start} * 1000", "A"))
        .with_target(instant(f"time() - {start}", "B"))
    )
