"""Values that the chart must refuse, each with a sentence, and the schema that does most of it."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from helm_chart import (
    CASES,
    CHART,
    ROOT,
    helm,
    objects,
    of_kind,
    refusal,
    values_of,
)
from yaml_files import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES = read_yaml(CHART / "values.yaml")
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# Maps whose keys are the user's own, or are checked by somebody else.
OPEN = {
    *("strings", "kubernetes", "items", "quantities", "alerts", "global"),
    # Of the programs' settings.
    *("environment", "headers", "overrides", "severity"),
    # Of each check by its name, which the program looks at.
    *("checks", "additionalProperties"),
}


def paths(values: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key, those of sections before those within them."""
    for key, value in values.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a section, which may be there or null."""
    for option in schema.get("anyOf", []):
        schema = option if "$ref" in option else schema
    reference = schema.get("$ref")
    return SCHEMA["definitions"][reference.rpartition("/")[2]] if reference else schema


def sections(
    schema: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every section with its path, the whole first."""
    if "properties" in resolved(schema):
        yield path, resolved(schema)["properties"]
        for key, section in resolved(schema)["properties"].items():
            yield from sections(section, (*path, key))


def nested(path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Return values that set one path."""
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


SECTIONS = dict(sections(SCHEMA))


@pytest.mark.parametrize("path", SECTIONS, ids=lambda path: ".".join(path) or "top")
def test_a_typo_is_refused_with_its_path(path):
    said = refusal(nested((*path, "typpo"), 1))

    assert f"at '{''.join('/' + key for key in path)}'" in said
    assert "additional properties 'typpo' not allowed" in said


@pytest.mark.parametrize("path", list(SECTIONS)[1:], ids=".".join)
def test_a_section_that_is_no_section_is_refused_with_its_path(path):
    assert f"at '/{'/'.join(path)}': got string, want object" in refusal(nested(path, "yes"))


def test_every_section_of_the_schema_is_closed():
    def walk(schema: Any, name: str) -> Iterator[str]:
        if isinstance(schema, list):
            for item in schema:
                yield from walk(item, name)
        elif isinstance(schema, dict):
            if "properties" in schema and schema.get("additionalProperties") is not False:
                yield name
            if schema.get("type") == "object" and "properties" not in schema:
                yield name
            for key, subschema in schema.items():
                yield from walk(subschema, key)

    assert OPEN == set(walk(SCHEMA, "top"))
    assert SCHEMA["properties"]["rules"]["properties"]["alerts"]["additionalProperties"]


def test_schema_and_defaults_have_the_same_keys():
    # What is not set has no default: settings of the programs, single resources, Helm's own.
    asked = {
        (*path, key)
        for path, keys in SECTIONS.items()
        for key in keys
        if "config" not in path and path[1:] != ("resources",)
    }
    given = {
        path for path in paths(VALUES) if path[:-1] in SECTIONS and path[1:-1] != ("resources",)
    }

    assert asked - {("global",), ("enabled",)} == given


def test_every_value_is_explained_or_stands_for_itself():
    # What Kubernetes calls so too.
    plain = {
        *("affinity", "annotations", "config", "egress", "env", "limits"),
        *("nodeSelector", "podAnnotations", "podLabels", "requests"),
        *("priorityClassName", "tolerations", "topologySpreadConstraints", "type"),
        "updateStrategy",
    }
    lines = (CHART / "values.yaml").read_text().splitlines()
    bare = {
        line.split(":")[0].strip()
        for before, line in pairwise(lines)
        if re.match(r" +\w+: ", line) and not before.strip().startswith("#")
    }

    assert set() == bare - plain


def test_rules_files_named_are_those_there_are():
    files = {
        path.name.removesuffix(".rules.yaml") for path in (ROOT / "rules").glob("*.rules.yaml")
    }

    assert set(VALUES["rules"]["files"]) == files - {"recording"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"exporter": {"port": 70000}}, "at '/exporter/port': maximum: got 70,000, want 65,535"),
        ({"preset": "dcmg"}, "at '/preset': value must be one of 'peerwatch', 'fast', 'dcgm'"),
        ({"prometheus": {"url": "prometheus:9090"}}, "at '/prometheus/url': 'prometheus:9090'"),
        (
            {"exporter": {"resources": {"limits": {"cpu": True}}}},
            "at '/exporter/resources/limits/cpu': got boolean, want",
        ),
        ({"detector": {"replicas": "2"}}, "at '/detector/replicas': got string, want integer"),
        ({"image": {"pullPolicy": "always"}}, "at '/image/pullPolicy': value must be one of"),
        (
            {"detector": {"config": {"cycle_seconds": 0.1}}},
            "at '/detector/config/cycle_seconds': minimum: got 0.1, want 0.5",
        ),
        (
            {"exporter": {"config": {"nvlink": {"per_link": "no"}}}},
            "at '/exporter/config/nvlink/per_link': got string, want boolean",
        ),
    ],
    ids=["port", "preset", "url", "quantity", "text", "choice", "detector", "exporter"],
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_path(values, said):
    assert said in refusal(values)


MISTAKES = {
    "nobody evaluates": (
        {"detector": {"replicas": 0}},
        "detector.replicas: 0 leaves no detector to evaluate the jobs; at least 1",
    ),
    "more copies than detectors": (
        {"detector": {"replicas": 2, "replication": 3}},
        "detector.replication: 3 detectors cannot evaluate the same job where "
        "detector.replicas is 2",
    ),
    "port of another": (
        {"exporter": {"port": 9100}},
        "exporter.port: 9100 is the port of node_exporter on every node",
    ),
    "no Prometheus": (
        {"prometheus": {"url": ""}},
        "prometheus.url: is empty; give the address of the server that the detector reads",
    ),
    "settings twice": (
        {"detector": {"existingSecret": "mine", "config": {"cycle_seconds": 5}}},
        'detector.config: is not used, since detector.existingSecret is "mine"',
    ),
    "heartbeats that nobody reads": (
        {"exporter": {"heartbeatDirectory": "/run/heartbeat"}},
        'exporter.heartbeatDirectory: "/run/heartbeat" is of no use while',
    ),
    "pings without a secret": (
        {"exporter": {"config": {"pings": {"enabled": True, "peers": ["node-1"]}}}},
        "exporter.pingsSecret: is empty, but exporter.config.pings.enabled is true",
    ),
    "pings in the pods' own network": (
        {
            "exporter": {
                "config": {"pings": {"enabled": True, "peers": ["node-1"]}},
                "pingsSecret": "pings",
                "privileges": {"hostNetwork": False},
            }
        },
        "exporter.privileges.hostNetwork: is false, but exporter.config.pings.enabled is true",
    ),
    "logs of nobody": (
        {"exporter": {"logs": {"enabled": True}}},
        "exporter.logs.enabled: is of no use while exporter.privileges.processes is false",
    ),
    "logs in the container's own place": (
        {"exporter": {"logs": {"directories": ["/shared", "/etc/slurm"]}}},
        'exporter.logs.directories: "/etc/slurm" would hide a directory of the container',
    ),
    "no device": (
        {"exporter": {"privileges": {"kernelLog": "device"}}},
        "exporter.privileges.kernelLogDevice: is empty",
    ),
    "TLS for nobody": (
        {"exporter": {"monitor": {"scheme": "https"}}},
        'exporter.monitor.scheme: is "https", but exporter.webConfigSecret is empty',
    ),
    "TLS for nobody at the detector": (
        {"detector": {"monitor": {"scheme": "https"}}},
        'detector.monitor.scheme: is "https", but detector.webConfigSecret is empty',
    ),
    "exporter times out late": (
        {"exporter": {"monitor": {"interval": "1s", "scrapeTimeout": "1500ms"}}},
        'exporter.monitor.scrapeTimeout: "1500ms" is longer than the interval "1s"',
    ),
    "detector times out late": (
        {"detector": {"monitor": {"interval": "1m", "scrapeTimeout": "1m1s"}}},
        'detector.monitor.scrapeTimeout: "1m1s" is longer than the interval "1m"',
    ),
    "scrapes too rare": (
        {
            "exporter": {"monitor": {"kind": "PodMonitor", "interval": "15s"}},
            "rules": {"enabled": True},
        },
        'exporter.monitor.interval: "15s" is too long for the recording rules',
    ),
    "scrapes too rare for the preset fast": (
        {
            "preset": "fast",
            "exporter": {
                "monitor": {"kind": "PodMonitor", "interval": "30s", "fast": {"enabled": True}}
            },
            "rules": {"enabled": True},
        },
        'exporter.monitor.interval: "30s" is too long for the recording rules of the preset fast',
    ),
    "nobody scrapes the fast expositions": (
        {"preset": "fast", "exporter": {"monitor": {"kind": "PodMonitor"}}},
        'exporter.monitor.fast.enabled: is false, but preset is "fast"',
    ),
    "nobody records": (
        {"rules": {"enabled": True, "recording": False}},
        "prometheus.recorded: is true, but rules.recording is false",
    ),
    "unknown alert": (
        {"rules": {"alerts": {"PeerwatchFaultyNod": {"enabled": False}}}},
        "rules.alerts.PeerwatchFaultyNod: there is no such alert; there are Peerwatch",
    ),
}
# Values that the programs would take.
TAKEN = {
    "exporter": {
        "listen.port": 9000,
        "paths.procfs": "/proc",
        "web.config_file": "/web.yaml",
        "heartbeat.directory": "/run/heartbeat",
        "jobs.mapping_directory": "/run/jobs",
        "jobs.pod_resources_socket": "/kubelet.sock",
        "logs.enabled": True,
        "logs.pods_directory": "/var/log/pods",
    },
    "detector": {
        "listen.port": 9000,
        "web.config_file": "/web.yaml",
        "preset": "dcgm",
        "prometheus.url": "http://prometheus:9090",
        "prometheus.recorded": False,
        "prometheus.headers": {"X-Scope-OrgID": "a"},
        "replicas.enabled": True,
    },
}


@pytest.mark.parametrize(("values", "said"), MISTAKES.values(), ids=MISTAKES)
def test_impossible_values_are_refused_with_a_sentence(values, said):
    assert f"  {said}" in refusal(values)


@pytest.mark.parametrize(
    ("program", "setting"),
    [(program, setting) for program, settings in TAKEN.items() for setting in settings],
)
def test_settings_that_the_chart_makes_are_not_taken_from_the_user(program, setting):
    values = nested((program, "config", *setting.split(".")), TAKEN[program][setting])
    path = rf"{program}\.config\.{setting.split('.')[0]}"

    assert re.search(rf"  {path}\S*: is set by the chart; use", refusal(values))


def test_all_mistakes_are_told_at_once():
    said = refusal({"exporter": {"port": 10250}, "detector": {"replicas": 0}})

    assert ("exporter.port: 10250" in said, "detector.replicas: 0" in said) == (True, True)


@pytest.mark.parametrize(
    "values",
    [
        {"detector": {"enabled": False, "replicas": 0}, "prometheus": {"url": ""}},
        {"exporter": {"enabled": False, "port": 9100}},
        {"exporter": {"port": 9100, "privileges": {"hostNetwork": False}}},
        {"detector": {"existingSecret": "mine"}, "prometheus": {"url": ""}},
        {"preset": "fast", "rules": {"enabled": True, "recording": False}},
    ],
    ids=["no detector", "no exporter", "pod network", "secret", "nothing recorded is read"],
)
def test_what_is_switched_off_cannot_be_mistaken(values):
    assert objects(values)


def test_values_of_a_parent_chart_are_let_through():
    assert objects({}) == objects({"global": {"imageRegistry": "registry.example.com"}})


@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_that_depends_on_it_may_switch_it(tmp_path, enabled):
    parent = {
        "apiVersion": "v2",
        "name": "observability",
        "version": "1.0.0",
        "dependencies": [
            {"name": "peerwatch", "version": "0.1.0", "condition": "peerwatch.enabled"}
        ],
    }
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    (tmp_path / "values.yaml").write_text("peerwatch: {enabled: true}\n")
    shutil.copytree(CHART, tmp_path / "charts" / "peerwatch")
    values = {"peerwatch": {"enabled": enabled}}
    with helm.Chart.load(tmp_path) as chart:
        rendered = chart.render(values, name="pw", namespace="training")

    assert enabled == any(text.strip() for text in rendered.values())


def test_by_itself_it_is_not_switched_off():
    assert "  enabled: is false, which only a chart with the dependency's" in refusal(
        {"enabled": False}
    )


@pytest.mark.parametrize("case", CASES)
def test_cases_together_switch_on_what_can_be(case):
    kinds = {manifest["kind"] for manifest in objects(values_of(case))}
    enabled = VALUES | values_of(case)

    assert enabled["exporter"].get("enabled", True) == ("DaemonSet" in kinds)
    assert enabled["rules"].get("enabled", False) == ("PrometheusRule" in kinds)


def test_every_template_makes_something_in_some_case():
    made = {manifest["kind"] for case in CASES for manifest in objects(values_of(case))}
    wanted = {
        kind
        for path in (CHART / "templates").rglob("*.yaml")
        for kind in re.findall(r"^kind: (\w+)$", path.read_text(), re.MULTILINE)
    }

    assert wanted | {"PodMonitor", "ServiceMonitor"} == made
    assert of_kind(objects(values_of("full")), "NetworkPolicy")


def test_the_secret_of_pings_lies_where_the_settings_name_it():
    rendered = objects(values_of("full"))
    (daemon_set,) = of_kind(rendered, "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    (settings,) = of_kind(rendered, "ConfigMap", "exporter")
    config = yaml.safe_load(settings["data"]["exporter.yaml"])

    (volume,) = [each for each in pod["volumes"] if each["name"] == "pings"]
    (mount,) = [e for e in pod["containers"][0]["volumeMounts"] if e["name"] == "pings"]
    assert {"secretName": "peerwatch-pings"} == volume["secret"]
    assert f"{mount['mountPath']}/pings.secret" == config["pings"]["secret_file"]
