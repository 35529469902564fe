"""The queries of a dashboard's JSON as Grafana would send them, for tests with and without data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))

# Values for tests that only parse. Against a live server pass its own job_id and node.
VARIABLES: Mapping[str, str] = {
    "cluster": ".*",
    "job_id": "job1",
    "node": "node1",
    "__rate_interval": "15s",
    "__interval": "15s",
    "__range": "30m",
}

# Panels whose queries may return nothing on a healthy cluster, and why.
EMPTY_WHEN_HEALTHY: Mapping[str, str] = {
    "Findings": "the table lists findings; a healthy job has none",
    "Ranks that do not run": "lists stopped, dead and waiting ranks only",
    "Reads from Prometheus": "the series per reason begin with the first failed read",
}


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


def dashboard_expressions(
    path: Path, variables: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return (panel title, PromQL) of every panel query, with variables substituted.

    Parameters
    ----------
    path
        The dashboard's JSON file.
    variables
        Values that replace those of ``VARIABLES``, such as the job_id and node of a live test.
    """
    values = {**VARIABLES, **(variables or {})}
    return [
        (panel["title"], substitute(target["expr"], values))
        for panel in panels(load(path))
        for target in panel["targets"]
    ]


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
