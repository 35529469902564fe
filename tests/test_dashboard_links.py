"""The links of dashboards: to one another, with what was chosen, and to runbooks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import promql_parser
import pytest

from dashboard_queries import (
    DASHBOARDS,
    VARIABLES,
    VARIABLES_OF,
    load,
    panels,
    substitute,
)
from promql_lint import labels_of, pack_schema

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("grafana_foundation_sdk")

every_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def links_of(path):
    """Yield (title, URL) of every link of a panel's series and columns."""
    for panel in panels(load(path)):
        config = panel["fieldConfig"]
        found = list(config["defaults"].get("links", []))
        for override in config["overrides"]:
            found += [
                link
                for prop in override["properties"]
                if prop["id"] == "links"
                for link in prop["value"]
            ]
        yield from ((panel["title"], link["url"]) for link in found)


def dashboard_links_of(path):
    """Yield those that lead to dashboards."""
    return ((title, url) for title, url in links_of(path) if url.startswith("/d/"))


def test_the_other_links_lead_to_the_runbook_of_an_alert():
    rules = (ROOT / "rules" / "meta.rules.yaml").read_text()
    others = {url for path in DASHBOARDS for _, url in links_of(path) if not url.startswith("/d/")}

    (url,) = others
    assert url.replace("${__value.raw}", "PeerwatchDetectorDown") in rules


@every_dashboard
def test_links_lead_to_our_dashboards_and_keep_what_was_chosen(path):
    variables = {f"peerwatch-{name}": names for name, names in VARIABLES_OF.items()}
    for title, url in dashboard_links_of(path):
        place, _, query = url.partition("?")
        given = re.findall(r"var-(\w+)=", query)

        assert "${__url_time_range}" in query, title
        assert "${datasource:queryparam}" in query, title
        assert "${cluster:queryparam}" in query, title
        assert given, title
        assert set(variables[place.removeprefix("/d/")]) >= set(given), title


@every_dashboard
def test_links_of_series_use_labels_that_the_series_have(path):
    for panel in panels(load(path)):
        wanted = {
            label
            for link in panel["fieldConfig"]["defaults"].get("links", [])
            for label in re.findall(r"__field\.labels\.(\w+)", link["url"])
        }
        for target in panel["targets"] if wanted else []:
            expr = promql_parser.parse(substitute(target["expr"], VARIABLES))
            assert labels_of(expr, pack_schema()) >= wanted, (panel["title"], target["expr"])


@every_dashboard
def test_nodes_and_other_jobs_in_tables_lead_on(path):
    """Of a job's dashboard all rows are that job's; of a node's all rows are that node's."""
    here = {"job": "Job", "node": "Node"}.get(path.stem)
    for panel in panels(load(path)):
        if panel["type"] != "table":
            continue
        options = {each["id"]: each["options"] for each in panel["transformations"]}
        linked = {
            override["matcher"]["options"]
            for override in panel["fieldConfig"]["overrides"]
            if any(each["id"] == "links" for each in override["properties"])
        }
        for heading in {"Job", "Node"} & set(options["organize"]["renameByName"].values()):
            assert heading == here or heading in linked, (panel["title"], heading)


@every_dashboard
def test_links_of_columns_use_columns_of_the_table(path):
    for panel in panels(load(path)):
        if panel["type"] != "table":
            continue
        (organize,) = [each for each in panel["transformations"] if each["id"] == "organize"]
        headings = set(organize["options"]["renameByName"].values())
        for override in panel["fieldConfig"]["overrides"]:
            if override["matcher"]["id"] != "byName":
                continue
            assert override["matcher"]["options"] in headings, panel["title"]
            used = re.findall(r"__data\.fields\.(\w+)", json.dumps(override["properties"]))
            assert headings >= set(used), panel["title"]


def test_fleet_leads_to_job_and_node_and_job_leads_to_node():
    leads = {
        path.stem: {url.partition("?")[0] for _, url in dashboard_links_of(path)}
        for path in DASHBOARDS
    }

    assert leads["fleet"] >= {"/d/peerwatch-job", "/d/peerwatch-node"}
    assert "/d/peerwatch-node" in leads["job"]
    assert "/d/peerwatch-job" in leads["node"]


@every_dashboard
def test_the_menu_leads_to_all_dashboards_with_time_and_variables(path):
    dashboard = load(path)
    (menu,) = dashboard["links"]

    assert menu["tags"] == dashboard["tags"] == ["peerwatch"]
    assert menu["type"] == "dashboards"
    assert menu["keepTime"]
    assert menu["includeVars"]
