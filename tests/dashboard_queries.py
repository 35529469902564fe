"""The queries of a dashboard's JSON as Grafana would send them, for tests with and without data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))
# The variables of each, in their order.
VARIABLES_OF = {
    "fleet": ["datasource", "cluster"],
    "job": ["datasource", "cluster", "job_id", "node"],
    "node": ["datasource", "cluster", "job_id", "node"],
    "fabric": ["datasource", "cluster", "job_id"],
    "detector": ["datasource", "cluster"],
    "reliability": ["datasource", "cluster"],
}

# Values for tests that only parse. Against a live server pass its own job_id and node.
VARIABLES: Mapping[str, str] = {
    "cluster": ".*",
    "job_id": "job1",
    "node": "node1",
    "__rate_interval": "15s",
    "__interval": "15s",
    "__range": "30m",
}

# Panels whose queries may return nothing although dashboard and panel are well, and why.
MAY_BE_EMPTY: Mapping[tuple[str, str], str] = {
    ("fleet", "Nodes whose exporter is down"): "lists exporters that are down; all answer",
    ("fleet", "Nodes with a failing collector"): "counts failing collectors; none fails",
    ("job", "annotation XID errors"): "a rank that hangs makes no XID error",
    (
        "job",
        "Step rate of the job",
    ): "a job's usual step rate is known after ten minutes, not before",
    ("job", "Traffic of the job"): "its usual traffic is known after ten minutes, not before",
    ("job", "Period of its traffic"): "the same",
    ("job", "What the job itself says"): "no rank of it ended, was stopped or is late",
    ("job", "Ranks that do not run"): "lists ranks that were stopped, have ended or wait for I/O",
    ("job", "Nodes set up unlike most"): "the nodes of the demonstration are set up alike",
    ("job", "Changed while the job runs"): "nobody changes them",
    ("job", "What the job does not agree on"): "the same",
    ("node", "How its ranks run"): "read once a minute, and its ranks are scripts",
    ("node", "Findings"): "the node that is shown has an error that its peers do not see",
    ("node", "annotation Findings"): "the same",
    ("node", "What the job itself says"): "its job is diagnosed late in the test, if at all",
    ("node", "Services"): "its last query lists failed units; none has failed",
    ("node", "Alerts"): "the alerts about its error wait longer than the test",
    ("detector", "Collectors that fail"): "lists failing collectors; none fails",
    ("detector", "Jobs it sees least of"): "one column counts metrics that no node has",
}

# Metrics that a simulated node does not have, and why; queries about them may return nothing.
NOT_IN_THE_DEMO: Mapping[str, str] = {
    "ethernet_errors_total": "its ports are InfiniBand",
    "ethernet_carrier_losses_total": "its ports are InfiniBand",
    "span_seconds_total": "its ranks are scripts that keep no spans",
    "collective_bytes_total": "its ranks are scripts that call no collectives",
    "collective_launched_total": "the same",
    "collective_duration_seconds_total": "the same",
    "collective_in_flight_seconds": "the same",
    "collective_last_sequence": "the same",
    "log_class_events_total": "its ranks are scripts whose output nobody keeps",
    "log_first_error_timestamp_seconds": "the same",
    "log_first_error_info": "the same",
    "log_peer_errors_total": "the same",
    "peerwatch_check_status": "no check runs on its nodes",
    "peerwatch_check_value": "the same",
    "peerwatch_check_last_run_timestamp_seconds": "the same",
    "ping_sent_total": "its nodes send no pings",
    "ping_recent_round_trip_seconds": "the same",
    "bond_slave_up": "it has no bond",
    "bond_slave_link_failures_total": "it has no bond",
    "exporter_job_mapping_errors_total": "the job is found without a mapping directory",
    "nic_burst_pfc_pause_frames_per_second": "the sampler's process asks the real driver",
    "gpu_retired_pages": "boards before Ampere only",
    "gpu_page_retirement_pending": "boards before Ampere only",
    "nvlink_bit_error_ratio": "Blackwell only",
    "nvlink_link_recoveries_total": "Blackwell only",
    "peerwatch_response_actions_total": "no responder runs beside the simulated nodes",
    "peerwatch_response_breaker_tripped": "the same",
    "peerwatch_response_budget_remaining": "the same",
    "peerwatch_response_decisions_total": "the same",
    "peerwatch_response_dry_run": "the same",
    "peerwatch_response_nodes_out": "the same",
    "peerwatch_response_paused": "the same",
    "peerwatch_response_pending": "the same",
    "peerwatch_response_server_up": "the same",
    "peerwatch_response_stuck": "the same",
    "peerwatch_response_stuck_info": "the same",
    "peerwatch_response_waiting": "the same",
    "peerwatch_reliability_ettr_ratio": "no scheduler runs beside the simulated nodes",
    "peerwatch_reliability_ettr_target_ratio": "the same",
    "peerwatch_reliability_mttf_seconds": "the same",
    "peerwatch_reliability_goodput_loss_gpu_seconds_total": "the same",
    "peerwatch_reliability_failures_total": "the same",
    "peerwatch_reliability_failures_per_node_day": "the same",
    "peerwatch_reliability_cause_failures_per_node_day": "the same",
    "peerwatch_reliability_ettr_expected_ratio": "the same",
    "peerwatch_reliability_lost_work_seconds_total": "the same",
    "peerwatch_reliability_recovery_seconds_total": "the same",
    "peerwatch_reliability_missing": "the same",
    "peerwatch_lemon_score": "the same",
    "peerwatch_lemon": "the same",
    "peerwatch_read_errors_total": "the series per reason begin with the first failed read",
}


@dataclass(frozen=True)
class Query:
    """A panel's title and one of its queries as Grafana sends it.

    Parameters
    ----------
    title
        Of the panel.
    expr
        PromQL, its variables substituted.
    instant
        Whether it is asked for one time only.
    """

    title: str
    expr: str
    instant: bool


def load(path: Path) -> dict[str, Any]:
    """Return a dashboard's JSON."""
    dashboard: dict[str, Any] = json.loads(path.read_text())
    return dashboard


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every panel with data, those inside collapsed rows included."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Return ``text`` with ``$name`` and ``${name}`` replaced; an unknown variable is an error."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in variables:
            raise KeyError(f"{text!r} uses the unknown variable {name!r}")
        return variables[name]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)


def panel_queries(path: Path, variables: Mapping[str, str] | None = None) -> list[Query]:
    """Return every query of every panel, with variables substituted.

    Parameters
    ----------
    path
        The dashboard's JSON file.
    variables
        Values that replace those of ``VARIABLES``, such as the job_id and node of a live test.
    """
    values = {**VARIABLES, **(variables or {})}
    return [
        Query(panel["title"], substitute(target["expr"], values), target.get("instant", False))
        for panel in panels(load(path))
        for target in panel["targets"]
    ]


def dashboard_expressions(
    path: Path, variables: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return (panel title, PromQL) of ``panel_queries``."""
    return [(query.title, query.expr) for query in panel_queries(path, variables)]


def other_expressions(
    path: Path, variables: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return (what, PromQL) of the queries behind annotations and variables."""
    values = {**VARIABLES, **(variables or {})}
    dashboard = load(path)
    found = [
        (f"annotation {annotation['name']}", annotation["expr"])
        for annotation in dashboard["annotations"]["list"]
    ]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            inner = re.fullmatch(r"label_values\((.+), (\w+)\)|query_result\((.+)\)", query)
            assert inner is not None, query
            # label_values asks for a label of a series: as PromQL, a grouping by it.
            promql = inner[3] or f"count by ({inner[2]}) ({inner[1]})"
            found.append((f"variable {variable['name']}", promql))
    return [(what, substitute(expr, values)) for what, expr in found]
