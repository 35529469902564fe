"""What the documents say about the chart is what the chart does."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from helm_chart import CASES, CHART, ROOT, helm, objects, of_kind, only, pod_of, refusal, values_of
from peerwatch_detector.config import DetectorConfig
from peerwatch_exporter.settings.config import ExporterConfig
from yaml_files import read_yaml

DOCUMENTS = [ROOT / "docs" / f"{name}.md" for name in ("install", "faq", "exporter")]
INSTALL = DOCUMENTS[0].read_text()
EXAMPLES = [
    yaml.safe_load(text)
    for text in re.findall(r"```yaml\n# values\.yaml\n(.*?)```", INSTALL, re.DOTALL)
]
VALUES = read_yaml(CHART / "values.yaml")


@pytest.mark.parametrize("values", EXAMPLES, ids="-".join)
def test_values_in_the_document_are_taken(values):
    assert objects(values)


@pytest.mark.parametrize("values", [*EXAMPLES, *(values_of(case) for case in CASES)], ids="-".join)
def test_a_runtime_class_is_asked_only_of_nodes_with_gpus(values):
    (*pods,) = (pod_of(workload)["spec"] for workload in of_kind(objects(values), "DaemonSet"))

    for pod in pods:
        selected = "true" == pod["nodeSelector"].get("nvidia.com/gpu.present")
        assert ("nvidia" == pod.get("runtimeClassName")) == selected


def test_examples_show_the_runtime_class():
    classes = [example.get("exporter", {}).get("runtimeClassName") for example in EXAMPLES]

    assert classes.count("nvidia") >= 2


def test_commands_of_the_document_make_the_names_that_it_uses():
    commands = re.findall(r"^    (helm .*)$", INSTALL, re.MULTILINE)
    installs = [words.split() for words in commands if words.split()[1] in ("install", "upgrade")]
    (workload,) = re.findall(r"rollout restart statefulset/(\S+)`", INSTALL)

    assert {("peerwatch", "helm/peerwatch")} == {tuple(words[2:4]) for words in installs}
    assert workload == only(objects({}, name="peerwatch"), "StatefulSet")["metadata"]["name"]
    helm.validate_release_name("peerwatch")


def test_beside_kube_prometheus_stack_everything_carries_its_label():
    (values,) = [example for example in EXAMPLES if example.get("rules", {}).get("grafanaUrl")]
    rendered = objects(values)
    chosen = of_kind(rendered, "PodMonitor") + of_kind(rendered, "PrometheusRule")

    assert {"kube-prometheus-stack"} == {
        manifest["metadata"]["labels"]["release"] for manifest in chosen
    }
    assert {"1"} == {
        manifest["metadata"]["labels"]["grafana_dashboard"]
        for manifest in of_kind(rendered, "ConfigMap", "dashboards")
    }


def test_the_refusal_in_the_readme_is_what_helm_says():
    readme = (CHART / "README.md").read_text()
    (shown,) = re.findall(r"^    (impossible values:\n(?:      .*\n)+)", readme, re.MULTILINE)
    said = refusal({"exporter": {"port": 9100}, "detector": {"replicas": 0}})

    assert re.sub(r"^    ", "", shown, flags=re.MULTILINE).rstrip() in said


def test_the_table_of_privileges_has_them_all_with_their_defaults():
    table = INSTALL.split("### Privileges", 1)[1].split("\n###", 1)[0]
    rows = dict(re.findall(r"^\| `(\w+)(?:: device)?` \| `(\w+)` \|", table, re.MULTILINE))
    defaults = {
        name: str(value).lower() for name, value in VALUES["exporter"]["privileges"].items()
    }

    assert {name: value for name, value in defaults.items() if name != "kernelLogDevice"} == rows


def known(settings: Any, path: list[str]) -> bool:
    """Return whether a path leads somewhere in values or in a program's settings."""
    for key in path:
        if isinstance(settings, dict):
            if not settings:
                return True
            settings = settings.get(key)
        else:
            field = getattr(settings, "model_fields", {}).get(key)
            settings = None if field is None else field.annotation
        if settings is None:
            return False
    return True


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_settings_and_values_named_exist(path):
    sections = {*VALUES, *ExporterConfig.model_fields, *DetectorConfig.model_fields}
    named = re.findall(r"`([a-z]\w*(?:\.[a-zA-Z]\w*)+)(?:: [^`]*)?`", path.read_text())
    asked = [name.split(".") for name in named if name.split(".")[0] in sections]
    places = (VALUES, ExporterConfig, DetectorConfig)

    assert asked
    assert [] == [
        ".".join(setting) for setting in asked if not any(known(place, setting) for place in places)
    ]


def test_collectors_that_the_document_switches_off_beside_node_exporter_serve_no_rule():
    (off,) = [
        example["exporter"]["config"]["collectors"]["disabled"]
        for example in EXAMPLES
        if "collectors" in example.get("exporter", {}).get("config", {})
    ]
    rules = "".join(file.read_text() for file in (ROOT / "rules").glob("*.rules.yaml"))

    assert off
    assert [] == [name for name in off if f"host_{name}_" in rules]
