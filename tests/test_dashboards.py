"""The dashboards: fresh, readable by Grafana's own model, and asking only for metrics we have."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import promql_parser
import pytest

from all_metrics import ALL_METRICS
from dashboard_queries import (
    DASHBOARDS,
    MAY_BE_EMPTY,
    NOT_IN_THE_DEMO,
    VARIABLES,
    VARIABLES_OF,
    dashboard_expressions,
    load,
    other_expressions,
    panels,
    substitute,
)
from peerwatch_demo.stack.servers import find_program
from promql_lint import PRESET, labels_of, lint, pack_schema, selectors, walk
from yaml_files import read_yaml

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
    file.write_text(fresh.replace("fault score", "score"))

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


@every_dashboard
def test_no_line_of_panels_is_left_half_empty(path):
    lines: dict[int, list[tuple[int, int]]] = {}
    for panel in load(path)["panels"]:
        at = panel["gridPos"]
        lines.setdefault(at["y"], []).append((at["w"], at["h"]))

    assert {} == {y: line for y, line in lines.items() if sum(width for width, _ in line) != 24}
    assert {} == {y: line for y, line in lines.items() if len({height for _, height in line}) != 1}


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
@pytest.mark.parametrize("count", range(1, 40))
def test_any_number_of_panels_fills_its_lines(count, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "dashboards"))
    from board import line_lengths

    lengths = line_lengths(count, 3)

    assert len(lengths) == count
    assert all(lengths.count(length) % length == 0 for length in set(lengths))
    assert set(lengths) <= {1, 2, 3} if count < 3 else set(lengths) <= {2, 3}


def test_the_uids_are_fixed():
    expected = {name: f"peerwatch-{name}" for name in VARIABLES_OF}

    assert expected == {path.stem: load(path)["uid"] for path in DASHBOARDS}


@every_dashboard
def test_the_dashboard_is_not_editable_and_has_its_variables(path):
    dashboard = load(path)
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]

    assert dashboard["editable"] is False
    assert VARIABLES_OF[path.stem] == variables
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["refresh"] == 2, "reload when the time range changes"
            assert variable["description"]


def test_the_job_dashboard_draws_every_detection_metric_with_peers_and_chosen_node():
    path = ROOT / "dashboards" / "job.json"
    for metric in read_yaml(PRESET)["metrics"]:
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


def links_of(value):
    """Yield the address of every link below a part of a dashboard."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "url" and isinstance(part, str):
                yield part
            yield from links_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from links_of(part)


@every_dashboard
def test_a_link_to_a_dashboard_hands_on_every_variable_that_it_has_too(path):
    variables = {
        board["uid"]: {variable["name"] for variable in board["templating"]["list"]}
        for board in map(load, DASHBOARDS)
    }
    board = load(path)
    lost = set()
    for url in links_of(board["panels"]):
        if not url.startswith("/d/"):
            continue
        uid, _, query = url.removeprefix("/d/").partition("?")
        assert "${__url_time_range}" in query
        handed = set(re.findall(r"&var-(\w+)=", query)) | set(re.findall(r"\{(\w+):query", query))
        lost |= {(uid, each) for each in (variables[board["uid"]] & variables[uid]) - handed}
        # What this dashboard does not have would stand there as it is written.
        assert set(re.findall(r"\{(\w+):query", query)) <= variables[board["uid"]]

    assert set() == lost


def test_the_lists_of_what_may_be_empty_name_panels_and_metrics_in_use():
    names = {
        (path.stem, name)
        for path in DASHBOARDS
        for name, _ in dashboard_expressions(path) + other_expressions(path)
    }

    assert names >= MAY_BE_EMPTY.keys()
    assert drawn_metrics() >= NOT_IN_THE_DEMO.keys()


def drawn_metrics():
    """Return the metrics that some panel, variable or annotation asks for."""
    return {
        selector.name
        for path in DASHBOARDS
        for _, expr in dashboard_expressions(path) + other_expressions(path)
        for selector in selectors(promql_parser.parse(expr))
    }


def metrics_of_the_rules():
    """Return the metrics that some rule asks for."""
    return {
        selector.name
        for file in (ROOT / "rules").glob("*.rules.yaml")
        for group in read_yaml(file)["groups"]
        for rule in group["rules"]
        for selector in selectors(promql_parser.parse(rule["expr"]))
    }


def test_every_metric_is_drawn_or_used_by_a_rule_or_says_why_not():
    used = drawn_metrics() | metrics_of_the_rules()
    not_drawn = {name for name, spec in ALL_METRICS.items() if spec.not_drawn}
    # Those of /metrics/fast are the same values for the detector, at 1 s.
    listed = not_drawn | {name for name in ALL_METRICS if name.startswith("fast_")}

    assert ALL_METRICS.keys() - used == listed - used
    assert not_drawn & used == set()


def names_one_node(expr):
    """Return whether every selector asks for one node, or leaves out one of a job."""
    return all(
        any(matcher.name == "node" for matcher in selector.matchers.matchers)
        for selector in selectors(expr)
    )


def chosen(expr):
    """Return the arguments of every topk and bottomk in an expression."""
    return [
        part.expr
        for part in walk(expr)
        if isinstance(part, promql_parser.AggregateExpr) and str(part.op) in {"topk", "bottomk"}
    ]


@every_dashboard
def test_no_panel_shows_a_whole_fleet(path):
    """A line or a row for each of thousands of nodes or jobs stops the browser."""
    for title, text in dashboard_expressions(path):
        expr = promql_parser.parse(text)
        if {"node", "job_id"} & labels_of(expr, pack_schema()) and not names_one_node(expr):
            assert chosen(expr), title


@every_dashboard
def test_what_a_graph_shows_is_chosen_once_for_the_whole_time_range(path):
    for panel in panels(load(path)):
        if panel["type"] not in {"timeseries", "status-history", "state-timeline"}:
            continue
        for target in panel["targets"]:
            expr = promql_parser.parse(substitute(target["expr"], VARIABLES))
            for argument in chosen(expr):
                assert all(selector.at for selector in selectors(argument)), panel["title"]


@every_dashboard
def test_headings_of_tables_belong_to_labels_and_values_that_come(path):
    for panel in panels(load(path)):
        if panel["type"] != "table":
            continue
        options = {each["id"]: each["options"] for each in panel["transformations"]}
        columns = options["organize"]["renameByName"].keys()
        targets = panel["targets"]
        expected = {f"Value #{target['refId']}" for target in targets}
        for target in targets:
            expr = promql_parser.parse(substitute(target["expr"], VARIABLES))
            expected |= labels_of(expr, pack_schema())
        if grouping := options.get("groupingToMatrix"):
            row, column = grouping["rowField"], grouping["columnField"]
            assert expected == {"Value #A", row, column}, panel["title"]
            # Grafana calls the field of the rows so.
            expected = {"Value #A", f"{row}\\{column}"}
            columns |= {"Value"}

        assert columns == (expected if len(targets) > 1 else expected - {"Value #A"} | {"Value"})


@every_dashboard
def test_the_top_row_tells_in_one_line_and_in_the_colours_of_the_rule(path):
    """The first line: numbers and words from edge to edge, none in a colour of its own."""
    top = [panel for panel in panels(load(path)) if panel["gridPos"]["y"] == 1]
    colors = {
        step["color"]
        for panel in top
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    }

    assert {panel["type"] for panel in top} == {"stat"}
    assert sum(panel["gridPos"]["w"] for panel in top) == 24
    assert colors <= {"green", "yellow", "red", "#8e8e8e"}


@every_dashboard
def test_alerts_that_fire_come_first_and_critical_ones_before_all_others(path):
    board = panels(load(path))
    first = next(iter(board))
    (table,) = [panel for panel in panels(load(path)) if panel["title"] == "Alerts"]

    assert first["title"] == "Critical alerts"
    assert 'severity="critical"' in first["targets"][0]["expr"]
    assert [order["displayName"] for order in table["options"]["sortBy"]] == ["Severity", "For"]
    # Whatever number of warnings fires, it takes no line of a critical alert.
    critical, warnings = table["targets"][0]["expr"].split(" or bottomk(")
    assert 'severity="warning"' not in critical
    assert 'severity="critical"' not in warnings


@every_dashboard
def test_what_has_no_value_has_no_colour_of_the_rule(path):
    """Grafana gives it the colour of the lowest step."""
    for panel in panels(load(path)):
        if panel["type"] == "stat":
            lowest = panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]
            assert (lowest.get("value"), lowest["color"]) == (None, "#8e8e8e"), panel["title"]


# What has a value only while something is wrong.
_ONLY_WHILE_WRONG = {"Which node, for how long": "peerwatch_finding_start_timestamp_seconds"}


@every_dashboard
def test_no_number_is_red_at_its_lowest(path):
    """Red is above green or yellow: nothing, or none, is never red."""
    for panel in panels(load(path)):
        if panel["type"] != "stat":
            continue
        colors = [step["color"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        shown = colors[1:]
        if seen := _ONLY_WHILE_WRONG.get(panel["title"]):
            assert seen in panel["targets"][0]["expr"]
        elif "red" in shown:
            assert shown[0] in {"green", "yellow"}, panel["title"]


@pytest.mark.parametrize("dashboard", ["fleet", "job"])
def test_only_a_finding_is_red_in_a_heat_map_of_fault_scores(dashboard):
    (path,) = [each for each in DASHBOARDS if each.stem == dashboard]
    maps = [
        panel["fieldConfig"]["defaults"]
        for panel in panels(load(path))
        if panel["type"] == "status-history" and "fault score" in panel["title"].lower()
    ]

    assert maps
    for each in maps:
        assert each["color"]["mode"] == "thresholds"
        reds = [step["value"] for step in each["thresholds"]["steps"] if step["color"] == "red"]
        assert reds == [1]


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
