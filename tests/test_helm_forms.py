"""Labels, names, quantities, durations and ports that Kubernetes or Prometheus would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from helm_chart import ROOT, container_of, objects, of_kind, only, refusal
from yaml_files import read_yaml

RESERVED = (
    *("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
    *("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of"),
    "helm.sh/chart",
)
ALERT = "PeerwatchJobStalled"
# With what a duration of 0 would be.
DURATIONS = {
    "exporter.monitor.interval": "means the interval of Prometheus itself",
    "exporter.monitor.fast.interval": "means the interval of Prometheus itself",
    "detector.monitor.interval": "means the interval of Prometheus itself",
    "exporter.monitor.scrapeTimeout": "is no time to answer in; at least 1ms, or leave it empty",
    "detector.monitor.scrapeTimeout": "is no time to answer in; at least 1ms, or leave it empty",
}


def nested(path: str, value: object) -> dict[str, Any]:
    """Return values that set one path, such as exporter.podLabels."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def changed(**change: Any) -> dict[str, Any]:
    return {"rules": {"enabled": True, "alerts": {ALERT: change}}}


def test_the_labels_refused_are_those_that_the_chart_sets():
    rendered = objects({"rules": {"enabled": True}})

    assert set(RESERVED) == {label for found in rendered for label in found["metadata"]["labels"]}


@pytest.mark.parametrize(
    "path",
    [
        *("commonLabels", "exporter.podLabels", "exporter.monitor.labels", "detector.podLabels"),
        *("detector.monitor.labels", "rules.labels", "dashboards.labels"),
    ],
)
def test_a_label_of_the_chart_cannot_be_replaced(path):
    said = refusal(nested(path, dict.fromkeys(RESERVED, "mine")))

    for label in RESERVED:
        assert f'  {path}: the label {label} ("mine") is set by the chart' in said
        assert f"use a key of your own, such as example.com/{label.split('/')[1]}." in said


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            {"team": "ours and yours"},
            '  exporter.podLabels.team: "ours and yours" is no value of a label; at most 63',
        ),
        ({"team": "a" * 64}, "is no value of a label; at most 63 letters"),
        ({"-team": "a"}, '  exporter.podLabels: "-team" is no key of a label; at most 63'),
        (
            {"Example.com/team": "a"},
            '  exporter.podLabels: "Example.com/team" is no key of a label',
        ),
        ({"a/b/c": "a"}, '  exporter.podLabels: "a/b/c" is no key of a label'),
    ],
    ids=["spaces", "long", "dash", "domain", "slashes"],
)
def test_a_label_that_is_none_is_refused(labels, said):
    assert said in refusal({"exporter": {"podLabels": labels}})


def test_labels_that_kubernetes_takes_are_taken():
    labels = {"example.com/Team_1": "a.b-C", "empty": "", "k" * 63: "v" * 63}
    rendered = objects({"commonLabels": labels, "exporter": {"podLabels": labels}})

    assert labels.items() <= only(rendered, "DaemonSet")["metadata"]["labels"].items()


@pytest.mark.parametrize("path", ["rules.alertLabels", f"rules.alerts.{ALERT}.labels"])
def test_labels_by_which_alerts_are_routed_cannot_be_replaced(path):
    labels = ("alertname", "severity", "role", "component", "node", "job_id")
    said = refusal(nested(path, dict.fromkeys(labels, "mine")))

    for label in labels:
        assert f'  {path}: the label {label} ("mine") is set by the rules: routes and' in said


@pytest.mark.parametrize("path", ["rules.alertLabels", f"rules.alerts.{ALERT}.labels"])
def test_labels_that_tell_alerts_apart_cannot_be_replaced(path):
    # Those of all alerts that the rules' own tests expect; cluster is one value for most users.
    expected = {
        label
        for file in (ROOT / "tests" / "rules").glob("*.test.yaml")
        for test in read_yaml(file)["tests"]
        for case in test.get("alert_rule_test", [])
        for alert in case.get("exp_alerts") or []
        for label in alert["exp_labels"]
    } - {"cluster"}
    said = refusal(nested(path, dict.fromkeys(expected, "mine")))

    assert {"gpu", "metric", "level", "place", "instance"} < expected
    assert [] == [label for label in expected if f'label {label} ("mine")' not in said]


def test_a_name_that_prometheus_does_not_take_is_refused():
    said = refusal({"rules": {"alertLabels": {"my-team": "a"}}})

    assert '  rules.alertLabels: "my-team" is no name of a Prometheus label' in said


@pytest.mark.parametrize("path", ["nameOverride", "fullnameOverride"])
@pytest.mark.parametrize("name", ["My Name", "1st", "peerwatch-", "peer_watch"])
def test_a_name_of_no_object_is_refused(path, name):
    assert f'  {path}: "{name}" is no name of an object; lower-case' in refusal({path: name})


@pytest.mark.parametrize("release", ["2024", "9th-cluster", "peerwatch-1.0"])
def test_a_release_whose_name_no_service_may_have_is_refused(release):
    said = refusal({}, name=release)

    assert f'  fullnameOverride: is empty, and the release\'s name, "{release}", would make' in said
    assert objects({"fullnameOverride": "peerwatch"}, name=release)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("image.registry", "https://registry.example.com", "is no beginning of an image's name"),
        ("image.registry", "registry.example.com/AI-Team", "is no beginning of an image's name"),
        ("image.registry", "registry.example.com//a", "is no beginning of an image's name"),
        ("exporter.image.repository", "peerwatch-exporter:1.0", "is no name of an image; lower"),
        ("detector.image.repository", "/peerwatch", "is no name of an image; lower-case letters"),
        ("detector.image.repository", "Peerwatch", "is no name of an image; lower-case letters"),
        ("exporter.image.tag", "feature/x", "is no tag; at most 128 letters"),
        ("exporter.image.tag", "1.0 ", "is no tag; at most 128 letters"),
        ("detector.image.tag", ":1.0", "is no tag; at most 128 letters"),
    ],
)
def test_what_no_runtime_takes_for_an_image_is_refused(path, text, said):
    assert f'  {path}: "{text}" {said}' in refusal(nested(path, text))


@pytest.mark.parametrize(
    ("registry", "repository", "tag"),
    [
        ("localhost:5000", "peerwatch-exporter", "latest"),
        ("[2001:db8::1]:5000/a_b/c__d", "e--f", "v1.0_a-B"),
        ("Registry.Example.com/training/", "gpu/exporter", "0.1.0"),
        ("", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/x", "sha-1a2b3c"),
    ],
)
def test_what_a_runtime_takes_for_an_image_is_taken(registry, repository, tag):
    image = {"repository": repository, "tag": tag}
    values = {"image": {"registry": registry}, "exporter": {"image": image}}
    slash = "/" if registry else ""
    expected = f"{registry.removesuffix('/')}{slash}{repository}:{tag}"

    assert expected == container_of(only(objects(values), "DaemonSet"))["image"]


def test_a_service_account_is_created_once():
    shared = {"serviceAccount": {"name": "peerwatch"}}
    taken = {"serviceAccount": {"name": "default"}}
    used = {"serviceAccount": {"name": "peerwatch", "create": False}}
    said = refusal({"exporter": shared, "detector": shared, "checks": {"enabled": True} | taken})
    rendered = objects({"exporter": shared, "detector": used, "responder": shared})

    for program, name, creator in (
        ("detector", "peerwatch", "exporter.serviceAccount"),
        ("checks", "default", "Kubernetes itself, in every namespace"),
    ):
        sentence = f'is true, but the ServiceAccount "{name}" is created by {creator}; set it to'
        assert f"  {program}.serviceAccount.create: {sentence} false" in said
    assert "exporter.serviceAccount.create:" not in said
    assert 1 == len(of_kind(rendered, "ServiceAccount"))


@pytest.mark.parametrize("program", ["exporter", "detector"])
@pytest.mark.parametrize(
    ("part", "resource", "amount", "said"),
    [
        ("limits", "memory", "lots", '"lots" is no quantity; a number of at least 0'),
        ("limits", "memory", "2 Gi", '"2 Gi" is no quantity'),
        ("limits", "memory", "2GB", '"2GB" is no quantity'),
        ("limits", "memory", -1, '"-1" is no quantity; a number of at least 0'),
        ("limits", "memory", "", '"" is no quantity'),
        ("requests", "cpu", "half", '"half" is no quantity'),
        ("limits", "memory", "256m", '"256m" is 0.256 bytes; at least 1Mi; write Mi or Gi'),
        ("limits", "memory", 256, '"256" is 256 bytes; at least 1Mi'),
        ("requests", "cpu", "100Mi", '"100Mi" is 104857600 CPUs, which no node has; at most 1024'),
        ("requests", "memory", "1Ti", '"1Ti" is more than {program}.resources.limits.memory'),
    ],
)
def test_a_quantity_that_is_none_or_absurd_is_refused(program, part, resource, amount, said):
    values = {program: {"resources": {part: {resource: amount}}}}

    assert f"  {program}.resources.{part}.{resource}: {said.format(program=program)}" in refusal(
        values
    )


@pytest.mark.parametrize(
    "memory", ["1Gi", "1e9", "1.5Gi", "1000000k", "1E", 1073741824, "2000000000000m"]
)
def test_quantities_that_kubernetes_takes_are_taken(memory):
    resources = {"limits": {"memory": memory, "cpu": 0.5}, "requests": {"memory": 0, "cpu": ".25"}}
    workload = only(objects({"exporter": {"resources": resources}}), "DaemonSet")

    assert memory == container_of(workload)["resources"]["limits"]["memory"]


def test_a_request_may_be_the_limit():
    amounts = {"cpu": "1000m", "memory": "0.5Gi"}
    assert objects(
        {"exporter": {"resources": {"requests": amounts, "limits": {"cpu": 1, "memory": "512Mi"}}}}
    )


def monitors(text: str) -> dict[str, Any]:
    """Return values in which every duration is the same."""
    times = {"interval": text, "scrapeTimeout": text}
    return {
        "exporter": {"monitor": times | {"fast": {"interval": text}}},
        "detector": {"monitor": times},
    }


@pytest.mark.parametrize("text", ["1 s", "10", "1.5s", "1s1m", "5 minutes", "-1s"])
def test_a_duration_that_is_none_is_refused(text):
    said = refusal(monitors(text) | changed(**{"for": text, "keepFiringFor": text}))

    for path in (*DURATIONS, f"rules.alerts.{ALERT}.for", f"rules.alerts.{ALERT}.keepFiringFor"):
        assert f'  {path}: "{text}" is no duration; whole numbers, each with its unit' in said


@pytest.mark.parametrize("zero", ["0s", "0", "0m0s"])
def test_no_time_at_all_is_refused_where_it_means_something_else(zero):
    said = refusal(monitors(zero) | changed(keepFiringFor=zero))

    for path, meaning in DURATIONS.items():
        assert f'  {path}: "{zero}" {meaning}' in said
    assert (
        f'  rules.alerts.{ALERT}.keepFiringFor: "{zero}" resolves the alert at the first missing '
        "sample, and pages again with the next; more than 0, such as the 10m of a cause" in said
    )


def test_durations_that_prometheus_takes_are_taken():
    rendered = objects(changed(**{"for": "0s", "keepFiringFor": "1w2d"}))
    (rule, *_) = [
        rule
        for manifest in of_kind(rendered, "PrometheusRule")
        for group in manifest["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("alert") == ALERT
    ]

    assert ("0s", "1w2d") == (rule["for"], rule["keep_firing_for"])


@pytest.mark.parametrize("program", ["exporter", "detector"])
def test_a_port_that_the_pod_may_not_open_is_refused(program):
    assert f"  {program}.port: 443 is below 1024, and the pod may not open such a port" in refusal(
        {program: {"port": 443}}
    )


def test_a_privileged_exporter_may_open_any_port():
    assert objects({"exporter": {"port": 443, "privileges": {"kernelLog": "privileged"}}})


@pytest.mark.parametrize(
    "path",
    ["exporter.port", "detector.port", "exporter.monitor.interval", "detector.monitor.interval"],
)
def test_what_cannot_be_left_out_is_missed_with_a_sentence(path):
    assert f"  {path}: is empty; give a " in refusal(nested(path, None))


def test_what_can_be_left_out_may_be_null():
    pod = dict.fromkeys(("podLabels", "podAnnotations", "resources", "nodeSelector"))
    monitor = {"monitor": {"kind": "PodMonitor", "labels": None}}
    rendered = objects(
        {
            "commonLabels": None,
            "exporter": {"runtimeClassName": "nvidia"} | pod | monitor,
            "detector": pod | monitor,
            "rules": {"enabled": True, "labels": None, "alertLabels": None},
            "dashboards": {"enabled": True, "labels": None},
        }
    )

    assert [{}, {}] == [
        container_of(only(rendered, kind))["resources"] for kind in ("DaemonSet", "StatefulSet")
    ]


def test_the_service_may_have_any_port():
    service = only(objects({"detector": {"service": {"port": 80}}}), "Service", "detector")

    assert 80 == service["spec"]["ports"][0]["port"]


@pytest.mark.parametrize("program", ["exporter", "detector"])
def test_the_annotation_that_replaces_pods_cannot_be_replaced(program):
    said = refusal({program: {"podAnnotations": {"checksum/config": "a"}}})

    assert f'  {program}.podAnnotations: checksum/config ("a") is set by the chart' in said
