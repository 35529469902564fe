"""The dashboards: fresh, readable by Grafana's own model, and asking only for metrics we have."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dashboard_queries import (
    DASHBOARDS,
    EMPTY_WHEN_HEALTHY,
    VARIABLES,
    dashboard_expressions,
    load,
    other_expressions,
    panels,
    substitute,
)
from peerwatch_demo.stack import find_program
from promql_lint import PRESET, lint, pack_schema

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("grafana_foundation_sdk")

every_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def build(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )


def test_the_committed_json_is_what_the_builder_writes():
    result = build(ROOT / "dashboards" / "build.py", "--check")

    assert result.returncode == 0, result.stderr


def test_a_stale_file_is_named_and_rewritten(tmp_path):
    shutil.copytree(ROOT / "dashboards", tmp_path / "dashboards")
    preset = tmp_path / PRESET.relative_to(ROOT)
    preset.parent.mkdir(parents=True)
    shutil.copy(PRESET, preset)
    script, file = tmp_path / "dashboards" / "build.py", tmp_path / "dashboards" / "job.json"
    fresh = file.read_text()
    file.write_text(fresh.replace("Fault score", "Score"))

    check = build(script, "--check")
    untouched = file.read_text()
    rewrite = build(script)

    assert check.returncode == 1
    assert "job.json is stale" in check.stderr
    assert untouched != fresh
    assert rewrite.returncode == 0
    assert fresh == file.read_text()


def test_the_sdk_is_not_one_of_the_older_builds_with_an_epoch():
    assert "!" not in importlib.metadata.version("grafana-foundation-sdk")


# The SDK recommends its next model, which Grafana before 12 cannot read.
@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
@every_dashboard
def test_nothing_is_lost_in_grafanas_own_model(path):
    """A misspelt key at any level would vanish on the way through."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    committed = load(path)

    through = json.loads(json.dumps(Dashboard.from_json(committed), cls=JSONEncoder))

    assert committed == through


@every_dashboard
def test_keys_are_sorted_and_the_file_ends_with_a_newline(path):
    text = path.read_text()

    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@every_dashboard
def test_every_panel_query_parses_and_uses_known_metrics_and_labels(path):
    problems = [
        (title, problem)
        for title, expr in dashboard_expressions(path)
        for problem in lint(expr, pack_schema())
    ]

    assert problems == []


@every_dashboard
def test_every_annotation_and_variable_query_is_good_too(path):
    problems = [
        (what, problem)
        for what, expr in other_expressions(path)
        for problem in lint(expr, pack_schema())
    ]

    assert problems == []


@every_dashboard
def test_rates_use_the_rate_interval(path):
    for panel in panels(load(path)):
        for target in panel["targets"]:
            if "rate(" in target["expr"]:
                assert "[$__rate_interval]" in target["expr"], panel["title"]


@every_dashboard
def test_every_panel_says_what_it_shows(path):
    for panel in panels(load(path)):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]


@every_dashboard
def test_every_query_goes_to_the_chosen_data_source(path):
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    dashboard = load(path)

    for panel in panels(dashboard):
        assert chosen == panel["datasource"], panel["title"]
        assert all(target["datasource"] == chosen for target in panel["targets"]), panel["title"]
    for annotation in dashboard["annotations"]["list"]:
        assert chosen == annotation["datasource"]
    for variable in dashboard["templating"]["list"]:
        assert variable["type"] == "datasource" or variable["datasource"] == chosen


@every_dashboard
def test_ids_titles_and_references_are_unique(path):
    dashboard = load(path)
    everything = [panel["id"] for panel in dashboard["panels"]]
    kinds = [(panel["type"], panel["title"]) for panel in panels(dashboard)]

    assert all(isinstance(panel_id, int) for panel_id in everything)
    assert len(set(everything)) == len(everything)
    assert len(set(kinds)) == len(kinds)
    for panel in panels(dashboard):
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), panel["title"]


@every_dashboard
def test_panels_do_not_overlap_and_fit_the_width(path):
    taken: set[tuple[int, int]] = set()
    for panel in load(path)["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }

        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not taken & cells, panel["title"]
        taken |= cells


def test_the_uids_are_fixed():
    assert {path.stem: load(path)["uid"] for path in DASHBOARDS} == {"job": "peerwatch-job"}


@every_dashboard
def test_the_dashboard_is_not_editable_and_has_its_variables(path):
    dashboard = load(path)
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]

    assert dashboard["editable"] is False
    assert variables == ["datasource", "cluster", "job_id", "node"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["refresh"] == 2, "reload when the time range changes"
            assert variable["description"]


def test_the_job_dashboard_draws_every_detection_metric_with_peers_and_chosen_node():
    path = ROOT / "dashboards" / "job.json"
    for metric in yaml.safe_load(PRESET.read_text())["metrics"]:
        asked = [expr for _, expr in dashboard_expressions(path) if metric["recorded"] in expr]

        assert any('node!="node1"' in expr for expr in asked), metric["name"]
        assert any('node="node1"' in expr for expr in asked), metric["name"]


def test_the_links_of_the_alerts_lead_to_this_dashboard():
    rules = (ROOT / "rules" / "node.rules.yaml").read_text()
    dashboard = load(ROOT / "dashboards" / "job.json")
    names = {variable["name"] for variable in dashboard["templating"]["list"]}

    assert f"/d/{dashboard['uid']}?var-job_id=" in rules
    assert "&var-node=" in rules
    assert {"job_id", "node"} <= names


@every_dashboard
def test_the_list_of_panels_that_may_be_empty_names_panels(path):
    assert {panel["title"] for panel in panels(load(path))} >= EMPTY_WHEN_HEALTHY.keys()


def test_variables_are_substituted_in_both_notations():
    expected = 'up{a=".*", b="job1"}[15s]'

    assert expected == substitute('up{a="$cluster", b="${job_id}"}[$__rate_interval]', VARIABLES)


def test_an_unknown_variable_is_an_error():
    with pytest.raises(KeyError, match="no_such"):
        substitute("up{a='$no_such'}", VARIABLES)


@every_dashboard
def test_the_servers_own_parser_accepts_every_query(path, tmp_path):
    promtool = find_program("promtool")
    queries = [*dashboard_expressions(path), *other_expressions(path)]
    rules = [{"record": f"panel:{index}", "expr": expr} for index, (_, expr) in enumerate(queries)]
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))

    result = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
