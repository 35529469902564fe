"""The detector dashboard: can Peerwatch itself be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import alerts
import detector_cycles
import exporters
import variables
from board import board
from parts import GREEN, RED, YELLOW, Panel, count, levels, name, number, value_map
from promql import CLUSTER

if TYPE_CHECKING:
    from grafana_foundation_sdk.models import dashboard as models


def detector_dashboard() -> models.Dashboard:
    """Return the detector dashboard."""
    return board(
        "detector",
        "Detector and exporters",
        "Peerwatch itself: whether it reads, evaluates in time, and sees every node.",
        [variables.datasource(), variables.cluster("exporter_build_info")],
        {
            "Can it be believed": _state(),
            "Cycles and reads": detector_cycles.panels(CLUSTER),
            "What it sees": detector_cycles.observed(CLUSTER),
            "Exporters": exporters.panels(CLUSTER),
            "Exporters: drivers, sampler, web": exporters.parts_of_it(CLUSTER),
        },
    )


def _state() -> list[Panel]:
    ages = levels(GREEN, (60, YELLOW), (120, RED))
    return [
        *alerts.counts(alerts.about(CLUSTER), f"peerwatch_reader_up{{{CLUSTER}}}"),
        number(
            "Reading",
            "Whether the last read succeeded, of all detectors. No data: none runs.",
            "short",
            f"min(peerwatch_reader_up{{{CLUSTER}}})",
        )
        .mappings(value_map(("1", "reads", GREEN), ("0", "reads fail", RED)))
        .span(3),
        name(
            "Detectors",
            "How many run, by version. Each watches a part of the jobs.",
            "short",
            f"count by (version) (peerwatch_build_info{{{CLUSTER}}})",
            "version {{version}}",
        )
        .no_value("none")
        .span(3),
        number(
            "Job that waits longest",
            "Time since it was last read and evaluated without an error.",
            "s",
            "time() - min(max by (cluster, job_id)"
            f" (peerwatch_cycle_last_success_timestamp_seconds{{{CLUSTER}}}))",
        )
        .decimals(0)
        .thresholds(ages),
        number(
            "Jobs listed",
            "Time since the list of training jobs was last read.",
            "s",
            f"time() - max(peerwatch_discovery_last_success_timestamp_seconds{{{CLUSTER}}})",
        )
        .decimals(0)
        .thresholds(ages)
        .span(4),
        number(
            "Nodes watched",
            "Nodes of all training jobs that are compared.",
            "short",
            f"sum(max by (cluster, job_id) (peerwatch_job_nodes{{{CLUSTER}}}))",
        ).span(4),
        count(
            "Metrics without data",
            "Detection metrics that no node of any training job delivers: a collector that is off, "
            "hardware that is not there, or a recording rule that is not loaded.",
            f"count(max by (metric) (peerwatch_data_coverage_ratio{{{CLUSTER}}}) == 0)",
            f"peerwatch_data_coverage_ratio{{{CLUSTER}}}",
            YELLOW,
        ).span(12),
        count(
            "Collectors that fail",
            "Collectors of exporters whose last run failed or passed its deadline.",
            f"count(exporter_collector_success{{{CLUSTER}}} == 0)",
            f"exporter_collector_success{{{CLUSTER}}}",
            YELLOW,
        ).span(12),
        alerts.firing(alerts.about(CLUSTER)),
    ]
