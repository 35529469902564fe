"""The fleet dashboard: which training jobs and which nodes have problems now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import alerts
import device_errors
import diagnoses
import findings
import fleet_checks
import fleet_devices
import fleet_watch
import reliability
import responses
import variables
from board import board
from links import column_to, series_to
from parts import GREEN, RED, YELLOW, Panel, count, levels, number, properties, rows, scores
from promql import CLUSTER, highest

if TYPE_CHECKING:
    from grafana_foundation_sdk.models import dashboard as models

_EXPORTERS = f"exporter_build_info{{{CLUSTER}}}"
_JOBS = 50
_NODES = 30


def fleet_dashboard() -> models.Dashboard:
    """Return the fleet dashboard."""
    return board(
        "fleet",
        "Fleet",
        "All training jobs and nodes: is anything wrong, where, since when.",
        [variables.datasource(), variables.cluster("exporter_build_info")],
        {
            "Is anything wrong, where, since when": _now(),
            "Which training jobs": [_jobs(), _jobs_over_time()],
            "Which nodes": [_nodes_over_time(), _lemons()],
            "GPUs and their errors": fleet_devices.panels(CLUSTER),
            "Active checks": fleet_checks.panels(CLUSTER),
            "Is everything watched": fleet_watch.panels(CLUSTER),
            "What the responder did": responses.panels(CLUSTER),
            "How reliable it is": reliability.panels(CLUSTER),
        },
        [findings.annotation(CLUSTER)],
        since="now-1h",
    )


def _now() -> list[Panel]:
    return [
        *alerts.counts(alerts.about(CLUSTER), _EXPORTERS),
        findings.standing(CLUSTER).span(3),
        findings.longest(CLUSTER),
        *device_errors.counts(CLUSTER, _EXPORTERS),
        count(
            "GPUs lost",
            "GPUs that a node should have and the driver does not list or cannot reach.",
            "sum(clamp_min("
            f"max by (cluster, node) (gpus_expected{{{CLUSTER}}})"
            f" - (max by (cluster, node) (gpus_visible{{{CLUSTER}}})"
            f" or 0 * max by (cluster, node) (gpus_expected{{{CLUSTER}}})), 0))",
            _EXPORTERS,
        ).span(6),
        count(
            "Jobs not comparable",
            "Training jobs with too few nodes to compare, or with too many that deviate at once: "
            "no finding is raised for them.",
            f"count(min by (cluster, job_id) (peerwatch_job_comparable{{{CLUSTER}}}) == 0)",
            f"peerwatch_reader_up{{{CLUSTER}}}",
            YELLOW,
        ).span(6),
        count(
            "Exporters down",
            "Nodes that were scraped within the last hour and are not now. One that is absent from "
            "a running job is a finding too.",
            "count("
            f"max by (cluster, node) (last_over_time({_EXPORTERS}[1h]))"
            f" unless on (cluster, node) {_EXPORTERS})",
            f"last_over_time({_EXPORTERS}[1h])",
            YELLOW,
        ).span(6),
        number(
            "Detector last evaluated",
            "Time since the job that waits longest was read and evaluated. No data: no detector "
            "runs, and what this dashboard says of nodes is worth nothing.",
            "s",
            "time() - min(max by (cluster, job_id)"
            f" (peerwatch_cycle_last_success_timestamp_seconds{{{CLUSTER}}}))",
        )
        .decimals(0)
        .thresholds(levels(GREEN, (60, YELLOW), (120, RED)))
        .span(6),
        alerts.firing(alerts.about(CLUSTER)),
        findings.table(CLUSTER),
        diagnoses.table(CLUSTER),
    ]


def _jobs() -> Panel:
    job = "cluster, job_id"
    columns = {
        "cluster": "Cluster",
        "job_id": "Job",
        "Value #A": "Highest fault score",
        "Value #B": "Findings",
        "Value #C": "Nodes",
        "Value #D": "Comparable",
        "Value #E": "Steps per second",
        "Value #F": "Lowest coverage",
        "Value #G": "Last evaluated",
    }
    score = f"max by ({job}) (peerwatch_fault_score{{{CLUSTER}}})"
    standing = f"max by ({findings.WHO}) (peerwatch_finding{{{CLUSTER}}}) > 0"
    worst = f"topk({_JOBS}, {score})"
    scored = f"and on ({job}) {worst}"
    share = {"unit": "percentunit", "decimals": 0}
    return (
        rows(
            "Training jobs",
            f"The {_JOBS} jobs with the highest fault scores. Click a job for who differs in it.",
            columns,
            worst,
            f"count by ({job}) ({standing}) {scored}",
            f"max by ({job}) (peerwatch_job_nodes{{{CLUSTER}}}) {scored}",
            f"min by ({job}) (peerwatch_job_comparable{{{CLUSTER}}}) {scored}",
            f"max by ({job}) (rate(rank_steps_total{{{CLUSTER}}}[$__rate_interval])) {scored}",
            f"min by ({job}) (peerwatch_data_coverage_ratio{{{CLUSTER}}} > 0) {scored}",
            f"time() - max by ({job})"
            f" (peerwatch_cycle_last_success_timestamp_seconds{{{CLUSTER}}}) {scored}",
        )
        .no_value("The detector watches no job.")
        .override_by_name("Job", column_to("job", job_id="Job"))
        .override_by_name("Highest fault score", properties({**share, **_colored(0.5, 1)}))
        .override_by_name("Findings", properties({"noValue": "none", **_colored(1, 1)}))
        .override_by_name(
            "Comparable", properties({"mappings": findings.words(), "custom.cellOptions": _TEXT})
        )
        .override_by_name("Steps per second", properties({"decimals": 2, "noValue": "unknown"}))
        .override_by_name("Lowest coverage", properties(share))
        .override_by_name("Last evaluated", properties({"unit": "s", "decimals": 0}))
    )


_TEXT = {"type": "color-text"}


def _colored(warn: float, act: float) -> dict[str, object]:
    """Return text that turns yellow and red from two limits on."""
    steps = [(None, GREEN), (warn, YELLOW), (act, RED)]
    return {
        "custom.cellOptions": _TEXT,
        "thresholds": {
            "mode": "absolute",
            "steps": [{"value": value, "color": color} for value, color in steps],
        },
    }


def _jobs_over_time() -> Panel:
    return (
        scores(
            "Highest fault score by training job",
            f"The {_NODES} jobs with the highest score in the time range. Red: a finding stood.",
            highest(f"peerwatch_fault_score{{{CLUSTER}}}", "job_id", _NODES),
            "{{job_id}}",
        )
        .height(6)
        .data_links(series_to("job", "job_id"))
    )


def _nodes_over_time() -> Panel:
    return scores(
        "Fault score by node",
        f"The {_NODES} nodes with the highest score in the time range. Red: a finding stood. Many "
        "nodes at once point to what they share: a switch, a file system, the job itself.",
        highest(f"peerwatch_fault_score{{{CLUSTER}}}", "job_id, node", _NODES),
        "{{node}} ({{job_id}})",
    ).data_links(series_to("node", "job_id", "node"))


def _lemons() -> Panel:
    node = "cluster, node"
    began = f"peerwatch_finding_start_timestamp_seconds{{{CLUSTER}}}[7d]"
    # Of several detectors that published a finding the one that saw it come most often counts.
    worst = f"topk(20, sum by ({node}) (max by ({findings.WHO}) (changes({began}) + 1)))"
    jobs = f"count by ({node}) (count by ({node}, job_id) (last_over_time({began})))"
    errors = f'sum by ({node}) (gpu_xid_class_errors_total{{{CLUSTER}, class!="application"}})'
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "Value #A": "Findings in 7 days",
        "Value #B": "Jobs it was found in",
        "Value #C": "XIDs in the kernel log",
        "Value #D": "NIC link losses",
    }
    return (
        rows(
            "Lemon candidates",
            "Nodes found faulty in the last 7 days, most often first: findings in several jobs are "
            "the node's own doing. XIDs of applications are left out; links count since the driver "
            "was loaded.",
            columns,
            worst,
            f"{jobs} and on ({node}) {worst}",
            f"{errors} and on ({node}) {worst}",
            f"sum by ({node}) (nic_link_downed_total{{{CLUSTER}}}) and on ({node}) {worst}",
        )
        .no_value("No node was found faulty in the last 7 days.")
        .height(6)
        .override_by_name("Node", column_to("node", node="Node"))
    )
