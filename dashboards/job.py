"""The training-job dashboard: is the job healthy, which node differs, in what, since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import alerts
import collectives
import configuration
import device_errors
import diagnoses
import evidence
import findings
import logs
import peers
import pings
import ranks
import segments
import variables
import xid
from board import board
from parts import GREEN, RED, YELLOW, Panel, levels, name, number
from promql import CLUSTER, JOB, MEMBERSHIP

if TYPE_CHECKING:
    from grafana_foundation_sdk.models import dashboard as models


# Also what fires about a node of the job without naming the job.
_ALERTS = alerts.about_job(JOB, CLUSTER, f"{MEMBERSHIP}{{{JOB}}}")
_SEEN = f"exporter_build_info{{{CLUSTER}}}"


def job_dashboard() -> models.Dashboard:
    """Return the training-job dashboard."""
    return board(
        "job",
        "Training job",
        "One training job: its nodes compared with one another by Peerwatch.",
        [
            variables.datasource(),
            variables.cluster("peerwatch_job_nodes"),
            variables.watched_job(),
            variables.suspect(),
        ],
        {
            "Is the job well, and who differs since when": _state(),
            "Who differs, in what": evidence.panels(JOB),
            "Node against its peers: $node": peers.panels(JOB),
            "Heartbeats and ranks": ranks.panels(JOB),
            "Collectives": collectives.panels(JOB),
            "What its logs say": logs.panels(JOB),
            "Where the seconds of a step go": segments.panels(JOB),
            "How the nodes are set up": configuration.panels(JOB),
            "Who reaches whom": pings.panels(JOB),
        },
        [findings.annotation(JOB), xid.annotation(JOB)],
    )


def _state() -> list[Panel]:
    return [
        *alerts.counts(_ALERTS, _SEEN),
        findings.standing(JOB).span(3),
        findings.longest(JOB),
        number(
            "Steps per second",
            "Optimiser steps of the fastest rank, over the last scrapes. 0: the job stands still, "
            "or a step takes longer than that.",
            "short",
            f"max(rate(rank_steps_total{{{JOB}}}[$__rate_interval]))",
        )
        .decimals(2)
        .no_value("unknown")
        .thresholds(levels(YELLOW, (0.0001, GREEN)))
        .span(3),
        name(
            "Comparable",
            "No means that the job has too few nodes, or that too many deviate at once (a common "
            "cause), as it says: no finding is raised then.",
            "short",
            f"0 * max by (reason) (peerwatch_job_not_compared_info{{{JOB}}})"
            f" or on () min(peerwatch_job_comparable{{{JOB}}})",
            "{{reason}}",
        )
        .mappings(findings.words())
        .span(3),
        number(
            "Last evaluated",
            "Time since the detector last read and evaluated this job.",
            "s",
            f"time() - max(peerwatch_cycle_last_success_timestamp_seconds{{{JOB}}})",
        )
        .decimals(0)
        .thresholds(levels(GREEN, (60, YELLOW), (120, RED)))
        .span(3),
        number(
            "Nodes",
            "Nodes of the job that the detector compares.",
            "short",
            f"max(peerwatch_job_nodes{{{JOB}}})",
        ).span(7),
        number(
            "Lowest data coverage",
            "Share of the nodes with fresh samples, in the metric that has the fewest. Metrics "
            "that no node has are left out.",
            "percentunit",
            f"min(peerwatch_data_coverage_ratio{{{JOB}}} > 0)",
        )
        .thresholds(levels(YELLOW, (1, GREEN)))
        .span(8),
        *device_errors.counts(CLUSTER, _SEEN, JOB),
        alerts.firing(_ALERTS),
        findings.table(JOB),
        diagnoses.table(JOB),
    ]
