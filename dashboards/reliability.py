"""The reliability dashboard, and the fleet's row about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import alerts
import variables
from board import board
from links import column_to
from parts import GREEN, YELLOW, Panel, areas, graph, levels, number, properties, rows
from promql import CLUSTER

if TYPE_CHECKING:
    from grafana_foundation_sdk.models import dashboard as models

_NODES = 20
_NONE_RUNS = "No reliability program runs."


def reliability_dashboard() -> models.Dashboard:
    """Return the reliability dashboard."""
    return board(
        "reliability",
        "Reliability",
        "ETTR, mean time to failure, goodput lost and lemon nodes, as peerwatch-reliability "
        "publishes them; every value is of the days before it (window_days).",
        [variables.datasource(), variables.cluster("peerwatch_reliability_ettr_target_ratio")],
        {
            "How reliable it is": [
                *_now(CLUSTER),
                alerts.firing(alerts.about(CLUSTER)),
                _ettr(CLUSTER),
                _what_if(CLUSTER),
            ],
            "How often jobs fail": [_mttf(CLUSTER).span(24), _mttf_table(CLUSTER)],
            "What fails": [_by_component(CLUSTER), _causes(CLUSTER)],
            "What it costs": [_lost(CLUSTER), _incidents(CLUSTER)],
            "Which nodes": [_nodes(CLUSTER)],
        },
        since="now-90d",
    )


def panels(fleet: str) -> list[Panel]:
    """Return the fleet's panels about reliability.

    Parameters
    ----------
    fleet
        Label matchers of the cluster.
    """
    return [_ettr(fleet), _lost(fleet), _nodes(fleet)]


def _now(fleet: str) -> list[Panel]:
    def shown(title: str, description: str, unit: str, expr: str) -> Panel:
        return number(title, description, unit, expr).span(4).no_value(_NONE_RUNS)

    ettr = f'max(peerwatch_reliability_ettr_ratio{{{fleet}, size_class="all", bound="expected"}})'
    rate = f'max(peerwatch_reliability_failures_per_node_day{{{fleet}, bound="value"}})'
    seen = f"peerwatch_reliability_ettr_target_ratio{{{fleet}}}"
    return [
        *(panel.span(4) for panel in alerts.counts(alerts.about(fleet), seen)),
        shown("ETTR", "Effective training time ratio, weighted by GPUs.", "percentunit", ettr),
        shown(
            "Failures per 1,000 node-days",
            "Failures of the infrastructure; none where none was seen.",
            "short",
            f"1000 * {rate}",
        ).decimals(2),
        shown(
            "Lemon nodes",
            "Nodes that fail again and again.",
            "short",
            f"count(peerwatch_lemon{{{fleet}}})"
            f" or 0 * max(peerwatch_reliability_ettr_target_ratio{{{fleet}}})",
        ).thresholds(levels(GREEN, (1, YELLOW))),
        shown(
            "What is missing",
            "Things that these numbers suffer from; the report names each.",
            "short",
            f"max(peerwatch_reliability_missing{{{fleet}}})",
        ).thresholds(levels(GREEN, (1, YELLOW))),
    ]


def _what_if(fleet: str) -> Panel:
    return graph(
        "With other checkpoint intervals",
        "ETTR that the largest job can expect if it writes a checkpoint so often, by the rate of "
        "failures of the window (formula C); the gap between two lines is what a change brings.",
        "percentunit",
        (
            f"max by (checkpoint_minutes) (peerwatch_reliability_ettr_expected_ratio{{{fleet}}})",
            "every {{checkpoint_minutes}} min",
        ),
    ).no_value(_NONE_RUNS)


def _mttf_table(fleet: str) -> Panel:
    def bound(name: str) -> str:
        return (
            "max by (cluster, size_class)"
            f' (peerwatch_reliability_mttf_seconds{{{fleet}, bound="{name}"}})'
        )

    columns = {
        "cluster": "Cluster",
        "size_class": "GPUs up to",
        "Value #A": "At least (95 %)",
        "Value #B": "MTTF",
        "Value #C": "At most (95 %)",
        "Value #D": "1/N line",
    }
    table = rows(
        "Mean time to failure by size, with its interval and the 1/N line",
        "The 1/N line is what the rate of all nodes together says of jobs of that size; an "
        "interval that it does not cross is of jobs that fail oftener, or less often.",
        columns,
        *(bound(name) for name in ("low", "value", "high", "line")),
    ).no_value(_NONE_RUNS)
    for heading in ("At least (95 %)", "MTTF", "At most (95 %)", "1/N line"):
        table = table.override_by_name(heading, properties({"unit": "s", "decimals": 1}))
    return table


def _by_component(fleet: str) -> Panel:
    return graph(
        "Rate of failures by component",
        "Failures per 1,000 node-days of the window before each time, by what failed: over months, "
        "which component becomes worse.",
        "short",
        (
            "1000 * max by (cause)"
            f' (peerwatch_reliability_cause_failures_per_node_day{{{fleet}, bound="value"}})',
            "{{cause}}",
        ),
    ).no_value(_NONE_RUNS)


def _incidents(fleet: str) -> Panel:
    failures = f"sum(increase(peerwatch_reliability_failures_total{{{fleet}}}[7d])) > 0"

    def mean(metric: str) -> str:
        lost = f"sum(increase(peerwatch_reliability_{metric}_seconds_total{{{fleet}}}[7d]))"
        return f"{lost} / ({failures})"

    return graph(
        "An incident's cost to its job",
        "Means of the last 7 days: work that was not saved, and time until the job made progress "
        "again.",
        "s",
        (mean("lost_work"), "work lost"),
        (mean("recovery"), "recovery"),
    ).no_value(_NONE_RUNS)


def _ettr(fleet: str) -> Panel:
    ettr = f"max by (size_class, bound) (peerwatch_reliability_ettr_ratio{{{fleet}"
    return graph(
        "ETTR by size of job",
        "Effective training time ratio over the window, by GPUs up to, and of all with its range; "
        "the range is wide where nobody states checkpoints.",
        "percentunit",
        (f'{ettr}, size_class!="all", bound="expected"}})', "up to {{size_class}} GPUs"),
        (f'{ettr}, size_class="all"}})', "all, {{bound}}"),
        (f"max(peerwatch_reliability_ettr_target_ratio{{{fleet}}})", "target"),
    ).no_value(_NONE_RUNS)


def _mttf(fleet: str) -> Panel:
    return graph(
        "Mean time to failure by size of job",
        "By GPUs up to: value, its 95 % interval (low, high), and line, which is what the rate of "
        "all nodes together says of that size. A size without a failure has a low bound only.",
        "s",
        (
            "max by (size_class, bound) (peerwatch_reliability_mttf_seconds{" + fleet + "})",
            "up to {{size_class}} GPUs, {{bound}}",
        ),
    ).no_value(_NONE_RUNS)


def _lost(fleet: str) -> Panel:
    return areas(
        "GPU hours lost by cause",
        "Goodput lost in the last day, with those of jobs preempted when a failed one "
        "started again (order second).",
        "short",
        (
            "sum by (cause, order) (increase(peerwatch_reliability_goodput_loss_gpu_seconds_total"
            f"{{{fleet}}}[1d])) / 3600",
            "{{cause}}, {{order}}",
        ),
    ).no_value(_NONE_RUNS)


def _causes(fleet: str) -> Panel:
    return areas(
        "Failures by cause",
        "Attempts that the infrastructure failed in the last 7 days.",
        "short",
        (
            f"sum by (cause) (increase(peerwatch_reliability_failures_total{{{fleet}}}[7d])) > 0",
            "{{cause}}",
        ),
    ).no_value(_NONE_RUNS)


def _nodes(fleet: str) -> Panel:
    node = "cluster, node"
    worst = f"topk({_NODES}, max by ({node}) (peerwatch_lemon_score{{{fleet}}}))"
    columns = {
        "cluster": "Cluster",
        "node": "Node",
        "Value #A": "Faults expected in 28 days",
        "Value #B": "Lemon",
    }
    return (
        rows(
            "Lemon nodes",
            f"The {_NODES} nodes of which most faults are expected. Most named nodes do not fail "
            "again soon: peerwatch-reliability lemons says how right such a list is here.",
            columns,
            worst,
            f"max by ({node}) (peerwatch_lemon{{{fleet}}}) and on ({node}) {worst}",
        )
        .no_value(_NONE_RUNS)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Faults expected in 28 days", properties({"decimals": 2}))
    )
