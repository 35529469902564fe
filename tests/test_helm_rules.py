"""Rules and dashboards of the chart are the repository's, but for what the values change."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from helm_chart import CASES, ROOT, case_objects, objects, of_kind, values_of
from peerwatch_demo.stack.servers import find_program
from yaml_files import read_yaml, yaml_text

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    path.name.removesuffix(".rules.yaml"): path for path in (ROOT / "rules").rglob("*.rules.yaml")
}
# The recording rules by preset; of one release only one set, for they build the same names.
RECORDING = {"peerwatch": "recording", "dcgm": "dcgm", "fast": "slow"}
# Alerts of one preset only.
ALERTS_OF = {"dcgm": ["dcgm-gpu"]}
CASES_WITH_RULES = [case for case in CASES if values_of(case).get("rules", {}).get("enabled")]
# Of all annotations of one object together: Kubernetes' TotalAnnotationSizeLimitB.
LARGEST_ANNOTATIONS_BYTES = 262_144
SUBJECTS = sorted(FILES.keys() - set(RECORDING.values()) - {"dcgm-gpu"})

Rule = dict[str, Any]


def rendered_groups(values: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the groups of rules by the name of their file."""
    found = of_kind(objects({"prometheus": {"recorded": False}} | values), "PrometheusRule")
    name = "pw-peerwatch-"
    return {
        manifest["metadata"]["name"].removeprefix(name): manifest["spec"]["groups"]
        for manifest in found
    }


def own_groups(name: str) -> list[Any]:
    return read_yaml(FILES[name])["groups"]


def alerts(groups: dict[str, list[Any]], name: str) -> list[Rule]:
    """Return all rules of one alert."""
    return [
        rule
        for file in groups.values()
        for group in file
        for rule in group["rules"]
        if rule.get("alert") == name
    ]


def changed(name: str, **change: Any) -> Rule:
    (rule, *_) = alerts(
        rendered_groups({"rules": {"enabled": True, "alerts": {name: change}}}), name
    )
    return rule


@pytest.mark.parametrize("preset", RECORDING)
def test_the_rules_are_those_of_the_repository(preset):
    groups = rendered_groups({"preset": preset, "rules": {"enabled": True}})

    names = (RECORDING[preset], *SUBJECTS, *ALERTS_OF.get(preset, ()))
    assert {name: own_groups(name) for name in names} == groups


def test_the_cases_with_rules_are_those_that_ask_for_them():
    rendered = [case for case in CASES if of_kind(case_objects(case), "PrometheusRule")]

    assert CASES_WITH_RULES == rendered != []


@pytest.mark.parametrize("case", CASES_WITH_RULES)
def test_promtool_takes_the_rendered_rules(case, tmp_path):
    files = [
        written(tmp_path / f"{manifest['metadata']['name']}.yaml", manifest["spec"])
        for manifest in of_kind(case_objects(case), "PrometheusRule")
    ]
    command = [find_program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


def written(path: Path, content: object) -> str:
    path.write_text(yaml_text(content))
    return str(path)


def test_files_are_left_out_by_subject():
    files = dict.fromkeys(SUBJECTS, False) | {"meta": True}
    groups = rendered_groups({"rules": {"enabled": True, "recording": False, "files": files}})

    assert ["meta"] == list(groups)


def test_an_alert_is_switched_off_at_all_its_severities():
    off = {"PeerwatchXidHardware": {"enabled": False}}
    everything = rendered_groups({"rules": {"enabled": True}})
    groups = rendered_groups({"rules": {"enabled": True, "alerts": off}})

    assert 2 == len(alerts(everything, "PeerwatchXidHardware"))
    assert [] == alerts(groups, "PeerwatchXidHardware")
    assert alerts(everything, "PeerwatchXidWatch") == alerts(groups, "PeerwatchXidWatch")


def test_an_alert_that_is_not_switched_off_stays():
    assert "PeerwatchXidWatch" == changed("PeerwatchXidWatch", enabled=True)["alert"]


def test_a_file_without_rules_is_left_out():
    # Records stay: others may read them.
    names = {rule["alert"] for group in own_groups("dcgm-gpu") for rule in group["rules"]}
    off = {name: {"enabled": False} for name in names}
    dcgm: dict[str, Any] = {"preset": "dcgm"}

    assert "dcgm-gpu" in rendered_groups(dcgm | {"rules": {"enabled": True}})
    assert "dcgm-gpu" not in rendered_groups(dcgm | {"rules": {"enabled": True, "alerts": off}})


def test_what_is_changed_of_an_alert_is_changed_and_nothing_else():
    (before, *_) = alerts({"node": own_groups("node")}, "PeerwatchHostMemoryLow")
    after = changed(
        "PeerwatchHostMemoryLow",
        **{"for": "30m", "keepFiringFor": "5m", "severity": "info"},
        labels={"team": "platform"},
        annotations={"escalation": "nobody"},
    )

    assert (
        before
        | {
            "for": "30m",
            "keep_firing_for": "5m",
            "labels": before["labels"] | {"severity": "info", "team": "platform"},
            "annotations": before["annotations"] | {"escalation": "nobody"},
        }
        == after
    )


def test_labels_of_all_alerts_reach_alerts_only():
    rules = {"enabled": True, "alertLabels": {"team": "infra"}}
    for groups in rendered_groups({"rules": rules}).values():
        for rule in (rule for group in groups for rule in group["rules"]):
            assert ("alert" in rule) == ("team" in rule.get("labels", {}))


def test_addresses_are_put_before_runbooks_and_dashboards():
    rules = {
        "enabled": True,
        "grafanaUrl": "https://grafana.example.com/",
        "runbookUrl": "https://wiki.example.com/peerwatch/",
    }
    (rule, *_) = alerts(rendered_groups({"rules": rules}), "PeerwatchJobStalled")
    notes = rule["annotations"]

    assert "https://wiki.example.com/peerwatch/PeerwatchJobStalled.md" == notes["runbook_url"]
    assert notes["dashboard_url"].startswith("https://grafana.example.com/d/peerwatch-job?")


def test_dashboards_are_those_of_the_repository():
    found = of_kind(objects({"dashboards": {"enabled": True}}), "ConfigMap", "dashboards")
    rendered = {
        file: json.loads(text) for manifest in found for file, text in manifest["data"].items()
    }
    files = (ROOT / "dashboards").glob("*.json")

    assert {file.name: json.loads(file.read_text()) for file in files} == rendered
    assert all("1" == manifest["metadata"]["labels"]["grafana_dashboard"] for manifest in found)


def test_every_object_can_be_applied_without_helm():
    rendered = objects({"dashboards": {"enabled": True}, "rules": {"enabled": True}})
    # What `kubectl apply` and Argo CD keep of an object in its own annotation.
    applied = {
        manifest["metadata"]["name"]: json.dumps(manifest, separators=(",", ":"))
        for manifest in rendered
    }

    assert {} == {
        name: len(text) for name, text in applied.items() if len(text) > LARGEST_ANNOTATIONS_BYTES
    }


def test_dashboards_go_where_grafana_looks():
    dashboards = {
        "enabled": True,
        "namespace": "grafana",
        "annotations": {"grafana_folder": "Jobs"},
    }
    found = of_kind(objects({"dashboards": dashboards}), "ConfigMap", "dashboards")

    assert {"grafana"} == {manifest["metadata"]["namespace"] for manifest in found}
    assert {"Jobs"} == {manifest["metadata"]["annotations"]["grafana_folder"] for manifest in found}
