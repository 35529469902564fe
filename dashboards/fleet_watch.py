"""The fleet's row about what is not watched: exporters down, collectors, missing metrics."""

from __future__ import annotations

from links import column_to, series_to
from parts import Panel, areas, graph, properties, rows

_SHOWN = 50


def panels(fleet: str) -> list[Panel]:
    """Return the panels about exporters and coverage.

    Parameters
    ----------
    fleet
        Label matchers of all nodes.
    """
    return [_down(fleet), _exporters(fleet), _coverage(fleet), _failing(fleet)]


def _down(fleet: str) -> Panel:
    seen = f"max by (cluster, node) (exporter_snapshot_timestamp_seconds{{{fleet}}})"
    last = (
        "max by (cluster, node)"
        f" (last_over_time(exporter_snapshot_timestamp_seconds{{{fleet}}}[1h]))"
    )
    columns = {"cluster": "Cluster", "node": "Node", "Value": "Down for"}
    return (
        rows(
            "Nodes whose exporter is down",
            f"Scraped within the last hour and not now; the {_SHOWN} that went down last.",
            columns,
            f"bottomk({_SHOWN}, time() - ({last} unless on (cluster, node) {seen}))",
        )
        .no_value("Every exporter of the last hour answers.")
        .height(8)
        .span(12)
        .override_by_name("Node", column_to("node", node="Node"))
        .override_by_name("Down for", properties({"unit": "s", "decimals": 0}))
    )


def _exporters(fleet: str) -> Panel:
    node = "max by (cluster, node, version)"
    return areas(
        "Exporters by version",
        "Nodes that are scraped. A step down is a rack, a switch or a Prometheus that went away.",
        "short",
        (f"count by (version) ({node} (exporter_build_info{{{fleet}}}))", "{{version}}"),
    )


def _coverage(fleet: str) -> Panel:
    series = f"peerwatch_data_coverage_ratio{{{fleet}}}"
    low, high = (f"{word}_over_time({series}[$__range] @ end())" for word in ("min", "max"))
    by = "job_id, metric"
    lowest = f"min by ({by}) ({series}) and bottomk(20, min by ({by}) ({low} and {high} > 0))"
    return (
        graph(
            "Data coverage",
            "Share of a job's nodes with fresh samples; the 20 lowest of the time range. Metrics "
            "that no node of a job has are left out.",
            "percentunit",
            (lowest, "{{job_id}} {{metric}}"),
        )
        .max(1)
        .data_links(series_to("job", "job_id"))
    )


def _failing(fleet: str) -> Panel:
    return graph(
        "Nodes with a failing collector",
        "By collector. One node is that node's matter; all at once are a driver, a kernel or a "
        "permission.",
        "short",
        (
            f"count by (collector) (exporter_collector_success{{{fleet}}} == 0)",
            "{{collector}}",
        ),
    ).no_value("No collector fails.")
