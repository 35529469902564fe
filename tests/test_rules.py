"""The rules: promtool's checks and unit tests, full coverage, our lint, and a runbook per alert.

A unit test of a file is in ``tests/rules``, under the same stem; alerts that need the membership of
nodes in jobs load ``job.rules.yaml`` as well, as Prometheus does.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from alertmanager_live import seconds
from each_case import each_case
from peerwatch_demo.stack.servers import find_program
from peerwatch_detector.config import load_preset
from peerwatch_detector.reading.promql import joined_query
from peerwatch_exporter.catalog.xid_codes import XIDS
from promql_lint import (
    Schema,
    dcgm_schema,
    labels_of,
    lint,
    lint_alert,
    pack_schema,
    selectors,
)
from yaml_files import read_yaml, yaml_text

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "rules"
# Sets for other people's exporters and for slow scrapes lie apart: they build series of one name.
RULE_FILES = sorted(RULES.rglob("*.rules.yaml"))
TEST_FILES = sorted((ROOT / "tests" / "rules").glob("*.test.yaml"))
# Of a file's unit tests, so that several workers share those of the largest.
BLOCKS_AT_ONCE = 15
RUNBOOKS = ROOT / "docs" / "runbooks"
RUNBOOK_URL = "https://github.com/peerwatch/peerwatch/blob/main/docs/runbooks/{}.md"

SEVERITIES = {"critical", "warning", "info"}
ROLES = {"cause", "symptom", "meta"}
COMPONENTS = {
    *("node", "host", "gpu", "pcie", "nic", "fabric", "job"),
    *("exporter", "detector", "responder", "reliability", "alerting"),
}
CASES = ("fires", "does not fire", "missing data", "resolves")
# It always fires, by design: there is nothing it could resolve from.
ALWAYS_FIRING = {"PeerwatchWatchdog"}
# When the rules began to watch, which they always do.
ALWAYS_RECORDED = {
    "alert:fault_evaluated:seconds",
    "alert:fault_watch:seconds",
    "alert:fault_resumed:seconds",
}
FINDINGS = {"PeerwatchFaultyNode", "PeerwatchSuspectNode"}
# About all nodes of a job together, and about all jobs of a detector.
MAY_LOSE = {
    "PeerwatchJobIdle": "node",
    "PeerwatchSharedCause": "node",
    "PeerwatchCheckFailedOnManyNodes": "node",
    "PeerwatchRdmaStoppedJob": "node",
    "PeerwatchDetectorLate": "job_id",
}
HEADINGS = [
    "Meaning",
    "Impact",
    "Diagnosis",
    "Mitigation",
    "False positives",
    "Is it safe to drain?",
]

# Its component is that of the alerts it holds back.
ANY_COMPONENT = "{{ $labels.component }}"

# The preset whose expressions each set of recording rules has, and the rates' window in seconds.
PRESETS = {"recording": ("peerwatch", 15), "dcgm": ("dcgm", 15), "slow": ("peerwatch", 60)}
MEMBERSHIP = "job_node:membership:info"

Rule = dict[str, Any]


def stem(file: Path) -> str:
    return file.name.split(".")[0]


def rules_of(file: Path) -> list[Rule]:
    return [rule for group in read_yaml(file)["groups"] for rule in group["rules"]]


ALERTS = [
    # An alert of two severities is two rules of one name.
    pytest.param(rule, file, id=f"{rule['alert']}-{rule['labels']['severity']}")
    for file in RULE_FILES
    for rule in rules_of(file)
    if "alert" in rule
]
RECORDS = [
    pytest.param(rule, file, id=rule["record"])
    for file in RULE_FILES
    for rule in rules_of(file)
    if "record" in rule
]


def schema_of(file: Path) -> Schema:
    """Return the metrics that the expressions of a file may use."""
    return dcgm_schema() if stem(file) in {"dcgm", "dcgm-gpu"} else pack_schema()


def blocks_of(file: Path) -> list[dict[str, Any]]:
    test_file = ROOT / "tests" / "rules" / f"{stem(file)}.test.yaml"
    return read_yaml(test_file)["tests"]


def promtool(*arguments: str) -> None:
    command = [find_program("promtool"), *arguments]
    # Its threads look for work on all cores, in vain: a tenth of its time.
    one_core = os.environ | {"GOMAXPROCS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=one_core)
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_every_rules_file():
    promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULE_FILES))


@pytest.mark.parametrize(
    ("file", "first"),
    [
        pytest.param(file, first, id=f"{stem(file)}-{first}")
        for file in TEST_FILES
        for first in range(0, len(blocks_of(file)), BLOCKS_AT_ONCE)
    ],
)
def test_promtool_unit_tests_pass(file, first, tmp_path):
    run_blocks(file, first, first + BLOCKS_AT_ONCE, tmp_path)


def run_blocks(file: Path, first: int, end: int | None, folder: Path) -> None:
    """Let promtool run blocks of a file of unit tests, each with the rules that it needs."""
    content = read_yaml(file)
    rule_files = [read_yaml((file.parent / rules).resolve()) for rules in content["rule_files"]]
    parts = []
    for number, block in enumerate(content["tests"][first:end], first):
        names = [f"{number}-{place}.rules.yaml" for place, _ in enumerate(rule_files)]
        for name, groups in zip(names, rules_needed(rule_files, yaml_text(block)), strict=True):
            (folder / name).write_text(yaml_text(groups))
        parts.append(folder / f"{number}.test.yaml")
        # A story of hours has few samples; in between, every evaluation would say the same.
        interval = max(content["evaluation_interval"], block["interval"], key=seconds)
        part = {"rule_files": names, "evaluation_interval": interval, "tests": [block]}
        parts[-1].write_text(yaml_text(content | part))

    promtool("test", "rules", *map(str, parts))


# A selector of alerts whose names are all written out.
_BY_NAME = re.compile(r'alertname=~?\\*"[\w|]+\\*"')


def rules_needed(files: list[Any], asked: str) -> list[Any]:
    """Return rule files without the rules that cannot change what is asked.

    promtool evaluates every rule at every moment of every block, and most are about other faults.
    Kept are rules whose names occur in the query, or in expressions and annotations of rules
    that are kept; all where alerts are asked for by other labels than their names.
    """
    rules = [rule for file in files for group in file["groups"] for rule in group["rules"]]
    texts = {id(rule): f"{rule['expr']} {rule.get('annotations', '')}" for rule in rules}
    needed = set[int]()
    found = [asked]
    while found:
        text = " ".join(found)
        if not all(map(_BY_NAME.search, re.findall(r"ALERTS\w*({[^}]*}|)", text))):
            return files
        named = {
            id(rule) for rule in rules if (rule.get("record") or rule.get("alert")) in words(text)
        }
        found = [texts[rule] for rule in named - needed]
        needed |= named
    return [
        {
            "groups": [
                group | {"rules": [rule for rule in group["rules"] if id(rule) in needed]}
                for group in file["groups"]
            ]
        }
        for file in files
    ]


def words(text: str) -> set[str]:
    """Return the names of metrics and alerts in a text, and its other words."""
    return set(re.findall(r"[A-Za-z_][\w:]*", text))


def test_the_rules_that_a_unit_test_needs_are_found_through_other_rules():
    kept = {"record": "a:b:sum", "expr": "sum(c)"}
    named = {"alert": "First", "expr": "a:b:sum > 0"}
    asks = {"alert": "Second", "expr": "x", "annotations": {"about": "{{ query `a:b:sum` }}"}}
    holds = {"alert": "Third", "expr": 'y unless ALERTS{alertname="First"}'}
    all_alerts = {"alert": "Fourth", "expr": 'ALERTS{role="cause"}'}
    rules = [kept, named, asks, holds, all_alerts]
    file = {"groups": [{"name": "g", "interval": "1s", "rules": rules}]}

    def needed(asked):
        (found,) = rules_needed([file], asked)
        (group,) = found["groups"]
        assert {"name": "g", "interval": "1s"}.items() <= group.items()
        return group["rules"]

    assert needed("c") == []
    assert needed("First") == [kept, named]
    assert needed("sum(a:b:sum)") == [kept]
    assert needed("Second") == [kept, asks]
    assert needed("Third") == [kept, named, holds]
    assert needed("Fourth") == rules
    assert needed("count(ALERTS)") == rules
    assert needed('ALERTS{alertname=~"F.*"}') == rules
    assert needed('ALERTS{alertname=~"Third|Other"}') == [kept, named, holds]


def test_the_rules_of_others_do_what_the_document_about_xids_says(tmp_path):
    folder = ROOT / "tests" / "rules" / "xid"
    document = (ROOT / "docs" / "xid-alerts.md").read_text()

    run_blocks(folder / "others.test.yaml", 0, None, tmp_path)
    for rule in rules_of(folder / "others.rules.yaml"):
        assert f"```promql\n{rule['expr']}\n```" in document


def test_the_document_about_xids_lists_the_alerts():
    document = (ROOT / "docs" / "xid-alerts.md").read_text()
    alerts = {rule.values[0]["alert"] for rule in ALERTS}

    assert {name for name in alerts if "xid" in name.lower()} == set(
        re.findall(r"\[(\w+)\]\(runbooks", document)
    )


def test_the_xids_asked_of_dcgm_are_those_of_the_hardware():
    rules = rules_of(RULES / "dcgm" / "dcgm-gpu.rules.yaml")
    hardware = {xid.code for xid in XIDS.values() if xid.severity == "hardware"}
    asked = [rule["expr"] for rule in rules if rule["alert"] == "PeerwatchXidHardware"]

    assert [hardware, hardware] == [set(map(int, re.findall(r"== (\d+)", e))) for e in asked]


@pytest.mark.parametrize("file", RULE_FILES, ids=stem)
def test_vmalert_accepts_every_rules_file(file, tmp_path):
    text = file.read_text()
    # Debian's vmalert 1.79 is older than this field; later ones know it.
    known = re.sub(r"^ +keep_firing_for: .*\n", "", text, flags=re.MULTILINE)
    (tmp_path / file.name).write_text(known)
    program = find_program("vmalert", "vmalert-prod")

    result = subprocess.run(
        [program, "-dryRun", f"-rule={tmp_path / file.name}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr


def test_every_rules_file_has_its_unit_tests():
    assert sorted(map(stem, RULE_FILES)) == sorted(map(stem, TEST_FILES))
    for file in RULE_FILES:
        tests = ROOT / "tests" / "rules" / f"{stem(file)}.test.yaml"
        own, *more = read_yaml(tests)["rule_files"]

        assert file == (tests.parent / own).resolve()
        assert more in ([], ["../../rules/job.rules.yaml"])


@each_case("rule, file", ALERTS)
def test_an_alert_has_all_four_cases(rule, file):
    blocks = {block["name"]: block for block in blocks_of(file)}
    for case in CASES:
        if rule["alert"] in ALWAYS_FIRING and case in {"does not fire", "resolves"}:
            continue
        block = blocks[f"{rule['alert']}: {case}"]
        asked = [t for t in block["alert_rule_test"] if t["alertname"] == rule["alert"]]
        fired = [
            bool(t["exp_alerts"]) for t in sorted(asked, key=lambda t: seconds(t["eval_time"]))
        ]

        assert fired, f"{case}: asserts nothing about the alert"
        if case == "does not fire":
            assert not any(fired)
        if case == "resolves":
            assert any(fired[:-1])
            assert not fired[-1]
        if case == "fires":
            assert any(fired)
            _assert_complete(rule, [alert for t in asked for alert in t["exp_alerts"]])


def _assert_complete(rule: Rule, expected: list[dict[str, Any]]) -> None:
    """Some expected alerts spell out all labels and annotations of the rule."""
    fixed = {name: value for name, value in rule["labels"].items() if value != ANY_COMPONENT}
    own = [a for a in expected if fixed.items() <= a["exp_labels"].items()]

    assert own
    for alert in own:
        assert rule["annotations"].keys() == alert["exp_annotations"].keys()


@pytest.mark.parametrize("file", TEST_FILES, ids=stem)
def test_a_unit_test_is_about_the_alert_it_names(file):
    for block in read_yaml(file)["tests"]:
        if ":" in block["name"]:
            about = block["name"].split(":")[0]
            assert about in {t["alertname"] for t in block["alert_rule_test"]}, block["name"]


def test_an_alert_is_asserted_four_times_on_average():
    asserted = sum(
        len(block.get("alert_rule_test", []))
        for file in TEST_FILES
        for block in read_yaml(file)["tests"]
    )

    assert asserted >= 4 * len({rule.values[0]["alert"] for rule in ALERTS})


@each_case("rule, file", RECORDS)
def test_a_recording_rule_is_asserted_with_a_value_and_without_data(rule, file):
    asserted = []
    for block in blocks_of(file):
        for check in block.get("promql_expr_test", []):
            named = {selector.name for selector in selectors(promql.parse(check["expr"]))}
            if named == {rule["record"]}:
                asserted.append(bool(check["exp_samples"]))

    wanted = {True} if rule["record"] in ALWAYS_RECORDED else {True, False}
    assert wanted == set(asserted)


@pytest.mark.parametrize(("file", "preset", "window"), [(k, *v) for k, v in PRESETS.items()])
def test_recording_rules_and_preset_are_the_same_expressions(file, preset, window):
    (path,) = (path for path in RULE_FILES if stem(path) == file)
    wanted = {
        metric.recorded: str(promql.parse(joined_query(metric, None, window)))
        for metric in (*load_preset(preset).progress, *load_preset(preset).metrics)
    }
    rules = {rule["record"]: str(promql.parse(rule["expr"])) for rule in rules_of(path)}

    assert wanted == {name: expr for name, expr in rules.items() if not name.endswith(":info")}


@pytest.mark.parametrize(
    ("preset", "carriers"),
    [
        ("peerwatch", {"host_job_info", "gpu_job_info"}),
        # dcgm-exporter has the job on every series of its own.
        ("dcgm", {name for name in dcgm_schema() if name.startswith("DCGM_")}),
    ],
    ids=["peerwatch", "dcgm"],
)
def test_preset_expressions_ask_for_one_job_only(preset, carriers):
    for metric in (*load_preset(preset).progress, *load_preset(preset).metrics):
        asked = selectors(promql.parse(joined_query(metric, 'job "7"', 15)))
        jobs = {
            selector.name
            for selector in asked
            for matcher in selector.matchers.matchers
            if matcher.name == "job_id" and matcher.value == 'job "7"'
        }

        assert jobs
        assert jobs == carriers & {selector.name for selector in asked}, metric.name


def test_both_presets_build_series_of_the_same_names_and_units():
    ours = {m.recorded: (m.unit, m.scope, m.bounds) for m in load_preset("peerwatch").metrics}
    theirs = {m.recorded: (m.unit, m.scope, m.bounds) for m in load_preset("dcgm").metrics}

    assert theirs.items() <= ours.items()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("recording.rules.yaml", {"job_node": 1, "job_gpu": 5}),
        ("dcgm/dcgm.rules.yaml", {"job_node": 1, "job_gpu": 5}),
        ("slow/slow.rules.yaml", {"job_node": 15, "job_gpu": 15}),
    ],
)
def test_series_are_recorded_as_often_as_their_reader_needs(file, expected):
    groups = read_yaml(RULES / file)["groups"]
    intervals = {
        rule["record"].split(":")[0]: seconds(group["interval"])
        for group in groups
        for rule in group["rules"]
        if not rule["record"].endswith(":info")
    }

    assert expected == intervals


def test_no_other_rule_reads_what_is_recorded_for_the_detector():
    # So tests of alerts on real servers do without these rules, which run every second.
    recorded = {rule["record"] for rule in rules_of(RULES / "recording.rules.yaml")}
    others = [rule for file in RULES.glob("*.rules.yaml") for rule in rules_of(file)]
    read = {
        name
        for rule in others
        if rule.get("record") not in recorded
        for name in words(f"{rule['expr']} {rule.get('annotations', '')}")
    }

    assert recorded
    assert not recorded & read


@each_case("rule, file", ALERTS + RECORDS)
def test_the_expression_has_no_problem(rule, file):
    assert lint(rule["expr"], schema_of(file)) == []


@each_case("rule, file", RECORDS)
def test_a_recorded_name_has_three_parts(rule, file):
    level = r"(job|(job_)?(cluster|place|node|gpu|port|alert|collector))"
    assert re.fullmatch(level + r":[a-z_]+:[a-z]+", rule["record"])


@each_case("rule, file", ALERTS)
def test_the_alert_keeps_what_routes_need(rule, file):
    problems = lint_alert(rule["expr"], seconds(rule.get("for", "0s")), schema_of(file))

    lost = f"the alert loses the label {MAY_LOSE.get(rule['alert'])!r}"
    assert [found for found in problems if found != lost] == []
    assert rule["labels"].keys() == {"severity", "role", "component"}
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["labels"]["role"] in ROLES
    held_back = {ANY_COMPONENT} if rule["alert"] == "PeerwatchSharedCauseNode" else set()
    assert rule["labels"]["component"] in COMPONENTS | held_back
    assert rule["alert"].startswith("Peerwatch")
    if rule["labels"]["role"] == "cause":
        assert "keep_firing_for" in rule


@each_case("rule, file", ALERTS)
def test_the_annotations_tell_what_to_do(rule, file):
    annotations = rule["annotations"]

    assert "{{" not in annotations["summary"], "the summary is the headline of a whole group"
    assert annotations["summary"].endswith(".")
    assert RUNBOOK_URL.format(rule["alert"]) == annotations["runbook_url"]
    assert len(annotations["description"]) > 100
    if rule["alert"] not in ALWAYS_FIRING:
        assert re.search(r"\bFirst\b|\bCompare\b", annotations["description"])
    if rule["alert"] in FINDINGS:
        for label in ("cluster", "job_id", "node", "gpu", "metric", "method"):
            assert f"$labels.{label}" in annotations["description"]
    if "dashboard_url" in annotations:
        named = set(re.findall(r"\$labels\.(\w+)", annotations["dashboard_url"]))
        assert "job_id" in named
        assert named <= labels_of(promql.parse(rule["expr"]), schema_of(file))


@each_case("rule, file", ALERTS)
def test_a_page_about_a_job_begins_with_what_it_failed_of(rule, file):
    # Exporters of others say nothing from which the root of a failure is found.
    if rule["labels"]["severity"] != "critical" or file.parent != RULES:
        pytest.skip("no page, or no exporter of ours")
    if rule["labels"]["role"] == "meta":
        pytest.skip("about what watches")
    if rule["labels"]["component"] == "responder":
        pytest.skip("begins with what was done: what to do first has been done")
    if "job_id" not in labels_of(promql.parse(rule["expr"]), schema_of(file)):
        pytest.skip("about no job")

    first = re.sub(r"\s+", " ", rule["annotations"]["description"]).partition(" | query")[0]
    assert first.endswith(
        'printf "max by (summary) (topk by (node, class) (1, peerwatch_diagnosis_info'
        '{cluster=%q,job_id=%q,root=\\"1\\"}))" $labels.cluster $labels.job_id'
    )
    assert first.startswith("{{-")


@each_case("rule, file", ALERTS)
def test_queries_in_annotations_have_no_problem(rule, file):
    queries = re.findall(r'printf "((?:[^"\\]|\\.)*)"', rule["annotations"]["description"])
    queries = [query.replace('\\"', '"') for query in queries if "{" in query]

    if rule["alert"] in FINDINGS:
        # What the job failed of, since when the node deviates, and why.
        assert len(queries) == 3
    for query in queries:
        assert "cluster=%q" in query
        assert lint(query.replace("%q", '"x"'), schema_of(file)) == []


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    alerts = {parameter.values[0]["alert"] for parameter in ALERTS}

    assert alerts == {file.stem for file in RUNBOOKS.glob("*.md")}


@each_case("file", sorted(RUNBOOKS.glob("*.md")))
def test_a_runbook_is_complete(file):
    text = file.read_text()
    title, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    bodies = dict(section.split("\n", 1) for section in sections)

    assert title.startswith(f"# {file.stem}\n")
    assert list(bodies) == HEADINGS
    assert all(body.strip() for body in bodies.values())
    # Commands to paste, and what they print when all is well or wrong.
    assert "```sh\n" in bodies["Diagnosis"]
    assert "```text\n" in bodies["Diagnosis"]


@each_case("file", sorted(RUNBOOKS.glob("*.md")))
def test_queries_in_a_runbook_have_no_problem(file):
    for query in re.findall(r"query instant \$PROMETHEUS '([^']*)'", file.read_text()):
        assert lint(query, pack_schema()) == [], query
