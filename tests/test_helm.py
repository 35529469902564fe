"""The chart: what it renders is what Kubernetes, Prometheus' operator and both programs take."""

from __future__ import annotations

import base64
import gzip
import json
import re
import tarfile
import tomllib
from typing import TYPE_CHECKING, Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import prometheus_operator
from helm_chart import (
    CASES,
    CHART,
    ROOT,
    Object,
    case_objects,
    container_of,
    helm,
    notes_of,
    objects,
    of_kind,
    only,
    pod_of,
    templates,
    values_of,
)
from peerwatch_detector.command_line import parser as detector_parser
from peerwatch_detector.config import load_config as load_detector_config
from peerwatch_exporter.collector import registrations
from peerwatch_exporter.process.command_line import parse as parse_exporter
from peerwatch_exporter.settings.load import load_config as load_exporter_config

if TYPE_CHECKING:
    from pathlib import Path

# The oldest that Chart.yaml allows, one in between, the newest there are schemas of.
KUBERNETES = ("1.27", "1.32", "1.37")
# Helm keeps a release in one Secret, and Kubernetes takes none that is larger.
LARGEST_SECRET_BYTES = 1_048_576
OPERATOR = "monitoring.coreos.com/v1"


def chart_file() -> dict[str, Any]:
    return yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_the_chart_installs_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == chart_file()["appVersion"]


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_finds_nothing(case):
    report = helm.lint(CHART, values_of(case), strict=True)
    found = [message for message in report["messages"] if message["severity"] > 1]

    assert ([], []) == (report["errors"], found)


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_every_object(version):
    # Most objects are the same in several cases, and the schema is read for each.
    different = {json.dumps(each): each for case in CASES for each in case_objects(case)}
    for manifest in different.values():
        if manifest["apiVersion"] != OPERATOR:
            assert version == kubernetes_validate.validate(manifest, version, strict=True)


def test_the_oldest_version_tried_is_the_oldest_allowed():
    assert f">={KUBERNETES[0]}.0-0" == chart_file()["kubeVersion"]


@pytest.mark.parametrize("case", CASES)
def test_the_operator_takes_every_monitor_and_rule(case):
    for manifest in case_objects(case):
        if manifest["apiVersion"] == OPERATOR:
            prometheus_operator.validate(manifest)


def test_a_monitor_with_a_typo_would_be_noticed():
    monitor = only(case_objects("sharded"), "PodMonitor", "detector")
    monitor["spec"]["podMetricsEndpoints"][0]["intreval"] = "1s"

    with pytest.raises(jsonschema.ValidationError, match="intreval"):
        prometheus_operator.validate(monitor)


@pytest.mark.parametrize("case", CASES)
def test_rendering_is_deterministic(case):
    assert templates(values_of(case)) == templates(values_of(case))


@pytest.mark.parametrize("case", CASES)
def test_every_object_has_its_place_and_a_name_of_its_own(case):
    rendered = case_objects(case)
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered]

    assert len(set(names)) == len(names)
    # Rights on nodes belong to no namespace.
    assert {"training"} == {
        manifest["metadata"].get("namespace", "none")
        for manifest in rendered
        if not manifest["kind"].startswith("Cluster")
    }
    for manifest in rendered:
        assert "pw" == manifest["metadata"]["labels"]["app.kubernetes.io/instance"]
        assert len(manifest["metadata"]["name"]) <= 63


def test_long_names_are_cut_to_what_kubernetes_takes():
    rendered = objects({"rules": {"enabled": True}}, name="a" * 53)

    assert max(len(manifest["metadata"]["name"]) for manifest in rendered) <= 63
    # Kubernetes adds a dash and ten letters to make a label of it.
    assert len(only(rendered, "StatefulSet")["metadata"]["name"]) <= 52


def test_what_may_never_change_is_what_it_was_in_the_first_release():
    rendered = case_objects("default")
    selector = {"app.kubernetes.io/name": "peerwatch", "app.kubernetes.io/instance": "pw"}
    for kind, component in (("DaemonSet", "exporter"), ("StatefulSet", "detector")):
        workload = only(rendered, kind)
        assert f"pw-peerwatch-{component}" == workload["metadata"]["name"]
        assert {"app.kubernetes.io/component": component} | selector == workload["spec"][
            "selector"
        ]["matchLabels"]
    detector = only(rendered, "StatefulSet")["spec"]

    assert "pw-peerwatch-detector-members" == detector["serviceName"]
    assert "Parallel" == detector["podManagementPolicy"]
    assert "volumeClaimTemplates" not in detector


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_the_pods_and_nothing_depends_on_labels_of_the_user(case):
    rendered = case_objects(case)
    plain = objects(values_of(case) | {"commonLabels": {"team": "b"}})
    workloads = of_kind(rendered, "DaemonSet") + of_kind(rendered, "StatefulSet")
    others = of_kind(plain, "DaemonSet") + of_kind(plain, "StatefulSet")
    for workload, other in zip(workloads, others, strict=True):
        selector = workload["spec"]["selector"]["matchLabels"]
        assert selector == other["spec"]["selector"]["matchLabels"]
        assert selector.items() <= pod_of(workload)["metadata"]["labels"].items()
        assert "b" == pod_of(other)["metadata"]["labels"]["team"]


@pytest.mark.parametrize("case", CASES)
def test_services_and_monitors_lead_to_pods(case):
    rendered = case_objects(case)
    pods = [
        pod_of(workload)
        for workload in rendered
        if workload["kind"] in ("DaemonSet", "StatefulSet")
    ]
    for service in of_kind(rendered, "Service"):
        (pod,) = [pod for pod in pods if chosen(service["spec"]["selector"], pod)]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= port_names(pod)
    for monitor in of_kind(rendered, "PodMonitor"):
        (pod,) = [pod for pod in pods if chosen(monitor["spec"]["selector"]["matchLabels"], pod)]
        ports = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
        assert ports <= port_names(pod)
    for monitor in of_kind(rendered, "ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [
            candidate for candidate in of_kind(rendered, "Service") if chosen(labels, candidate)
        ]
        ports = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
        assert ports <= {port["name"] for port in service["spec"]["ports"]}


def chosen(selector: dict[str, str], manifest: Object) -> bool:
    return selector.items() <= manifest["metadata"]["labels"].items()


def port_names(pod: Object) -> set[str]:
    return {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}


def test_the_web_ui_is_reached_while_prometheus_cannot_be_read():
    """What is not ready serves all the same: the view that says why, and findings that stand."""
    services = [each for case in CASES for each in of_kind(case_objects(case), "Service")]
    of_detector = [s for s in services if s["metadata"]["name"] == "pw-peerwatch-detector"]
    assert of_detector
    assert all(each["spec"]["publishNotReadyAddresses"] is True for each in of_detector)


@pytest.mark.parametrize("case", CASES)
def test_only_exporters_get_the_label_node(case):
    rendered = case_objects(case)
    for monitor in of_kind(rendered, "PodMonitor") + of_kind(rendered, "ServiceMonitor"):
        spec = monitor["spec"]
        (endpoint,) = spec.get("podMetricsEndpoints") or spec["endpoints"]
        labels = {relabeling.get("targetLabel") for relabeling in endpoint.get("relabelings", [])}
        of_exporter = monitor["metadata"]["name"].startswith("pw-peerwatch-exporter")
        assert of_exporter == ("node" in labels)
        # A detector keeps its name when its pod gets another address.
        assert of_exporter != ("instance" in labels)
        assert of_exporter != endpoint.get("honorLabels", False)
        assert ("cluster" in values_of(case)) == ("cluster" in labels)


@pytest.mark.parametrize("case", CASES)
def test_the_exporter_takes_its_settings_and_flags(case, tmp_path):
    rendered = case_objects(case)
    for workload in of_kind(rendered, "DaemonSet", "exporter"):
        text = only(rendered, "ConfigMap", "exporter")["data"]["exporter.yaml"]
        config = settings(text, tmp_path)
        options = parse_exporter(container_of(workload)["args"])
        known = registrations()
        load_exporter_config(config, listen=options.listen, known_collectors=known)

        mounts = {
            mount["name"]: mount["mountPath"] for mount in container_of(workload)["volumeMounts"]
        }
        assert mounts["proc"] == str(options.path_procfs)
        assert mounts["sys"] == str(options.path_sysfs)
        assert f"{mounts['config']}/exporter.yaml" == str(options.config)


@pytest.mark.parametrize("case", CASES)
def test_the_detector_takes_its_settings_and_flags(case, tmp_path):
    rendered = case_objects(case)
    text = only(rendered, "ConfigMap", "detector")["data"]["detector.yaml"]
    config = load_detector_config(settings(text, tmp_path))
    workload = only(rendered, "StatefulSet", "detector")
    options = detector_parser().parse_args(container_of(workload)["args"])
    values = values_of(case)

    assert values.get("preset", "peerwatch") == config.preset
    assert values.get("prometheus", {}).get("recorded", True) == config.prometheus.recorded
    assert "0.0.0.0:9401" == options.listen
    assert "/etc/peerwatch/detector.yaml" == str(options.config)


def settings(text: str, folder: Path) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


def test_settings_reach_the_detector_as_they_were_given(tmp_path):
    given = {
        "continuity": {"threshold_seconds": 12.5},
        "metrics": {"overrides": {"network_throughput": {"bounds": [0, 2.5e10]}}},
        "prometheus": {"timeout_seconds": 20, "lag_seconds": 3},
    }
    rendered = objects(
        {"detector": {"config": given}, "prometheus": {"headers": {"X-Scope-OrgID": "a"}}}
    )
    text = only(rendered, "ConfigMap", "detector")["data"]["detector.yaml"]
    config = load_detector_config(settings(text, tmp_path))

    assert 12.5 == config.continuity.threshold_seconds
    assert (20, 3) == (config.prometheus.timeout_seconds, config.prometheus.lag_seconds)
    assert {"X-Scope-OrgID": "a"} == config.prometheus.headers
    assert (0, 2.5e10) == tuple(config.metrics.overrides["network_throughput"].bounds)


@pytest.mark.parametrize(
    ("section", "given"),
    [("scope", {"memory_bytes": 2_199_023_255_552}), ("xid", {"severity": {109: "hardware"}})],
    ids=["large", "key"],
)
def test_numbers_stay_whole_numbers(section, given, tmp_path):
    rendered = objects({"exporter": {"config": {section: given}}})
    text = only(rendered, "ConfigMap", "exporter")["data"]["exporter.yaml"]
    path = settings(text, tmp_path)
    config = load_exporter_config(path, listen=None, known_collectors=registrations())

    assert given == getattr(config, section).model_dump(exclude_unset=True)


def test_replicas_share_the_jobs_of_their_release_only():
    rendered = case_objects("sharded")
    text = only(rendered, "ConfigMap", "detector")["data"]["detector.yaml"]

    assert {"enabled": True, "group": "training/pw-peerwatch", "replication": 2} == yaml.safe_load(
        text
    )["replicas"]
    assert 3 == only(rendered, "StatefulSet")["spec"]["replicas"]
    assert 1 == only(rendered, "PodDisruptionBudget")["spec"]["maxUnavailable"]


def test_one_detector_alone_is_told_of_no_others():
    rendered = case_objects("default")
    text = only(rendered, "ConfigMap", "detector")["data"]["detector.yaml"]

    assert "replicas" not in yaml.safe_load(text)
    assert [] == of_kind(rendered, "PodDisruptionBudget")


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("DaemonSet", {"exporter": {"config": {"gpu": {"expected_count": 8}}}}),
        ("StatefulSet", {"detector": {"config": {"cycle_seconds": 30}}}),
        ("StatefulSet", {"prometheus": {"url": "http://other:9090"}}),
    ],
    ids=["exporter", "detector", "prometheus"],
)
def test_new_settings_make_new_pods(kind, change):
    def checksum(values: dict[str, Any]) -> str:
        workload = only(objects(values), kind)
        return pod_of(workload)["metadata"]["annotations"]["checksum/config"]

    assert checksum({}) != checksum(change)
    assert checksum({}) == checksum({"rules": {"enabled": True}})


def test_pods_carry_no_version_that_would_replace_them_for_nothing():
    for kind in ("DaemonSet", "StatefulSet"):
        pod = pod_of(only(case_objects("default"), kind))
        values = [*pod["metadata"]["labels"].values(), *pod["metadata"]["annotations"].values()]
        assert [] == [value for value in values if chart_file()["version"] in value]


def test_the_package_holds_rules_and_dashboards_and_a_release_fits_into_its_secret(tmp_path):
    archive = helm.package(CHART, destination=tmp_path)
    with tarfile.open(archive) as package:
        files = {member.name: member for member in package.getmembers()}
        texts = [package.extractfile(member).read() for member in files.values()]
    rendered = "".join(templates(values_of("full")).values())
    release = gzip.compress(b"".join(base64.b64encode(text) for text in texts) + rendered.encode())

    assert all(member.isfile() for member in files.values())
    for folder, pattern in (("rules", "*.rules.yaml"), ("dashboards", "*.json")):
        expected = {f"peerwatch/{folder}/{p.name}" for p in (ROOT / folder).glob(pattern)}
        assert expected <= set(files)
    assert [] == [name for name in files if re.search(r"\.py$|/ci/|alertmanager", name)]
    assert len(base64.b64encode(release)) < LARGEST_SECRET_BYTES


def test_a_label_of_the_user_comes_once_and_the_nearer_one_counts():
    labels = {"labels": {"team": "b"}}
    values = {
        "commonLabels": {"team": "a"},
        "exporter": {"podLabels": {"team": "b"}, "monitor": {"kind": "PodMonitor"} | labels},
        "rules": {"enabled": True} | labels,
        "dashboards": {"enabled": True} | labels,
    }
    texts = templates(values)
    found = objects(values)

    workload = only(found, "DaemonSet")
    assert "a" == workload["metadata"]["labels"]["team"]
    assert "b" == pod_of(workload)["metadata"]["labels"]["team"]
    for kind, component in (("PodMonitor", "exporter"), ("ConfigMap", "dashboards")):
        chosen_ones = of_kind(found, kind, component)
        assert {"b"} == {manifest["metadata"]["labels"]["team"] for manifest in chosen_ones}
    (monitor,) = [text for path, text in texts.items() if path.endswith("exporter/monitor.yaml")]
    assert 1 == monitor.count("team:")


def test_the_notes_list_the_alerts_without_a_source():
    def noted(**privileges):
        notes = notes_of({"exporter": {"privileges": privileges}})
        return dict(re.findall(r"^     (\w+): (Peerwatch.*)$", notes, re.MULTILINE))

    given = {"processes": True, "kernelLog": "privileged", "filesystems": True, "systemd": True}

    assert {} == noted(**given)
    assert noted() == {
        "filesystems": "PeerwatchHostFilesystemFull, PeerwatchHostFilesystemUnresponsive",
        "kernelLog": "PeerwatchSxidFatal, PeerwatchSxidDegraded, PeerwatchHostOutOfMemory, "
        "PeerwatchHostHardwareEvents",
        "processes": "PeerwatchJobStalled, PeerwatchJobDegraded, PeerwatchHeartbeatOld, "
        "PeerwatchRankStopped",
        "systemd": "PeerwatchHostUnitFailed",
    }


def test_the_test_pod_asks_the_service():
    rendered = case_objects("default")
    pod = only(rendered, "Pod", "test")
    service = only(rendered, "Service", "detector")
    url = pod["spec"]["containers"][0]["command"][-1]
    name, port = service["metadata"]["name"], service["spec"]["ports"][0]["port"]

    assert f"http://{name}:{port}/-/ready" == url
    assert "test" == pod["metadata"]["annotations"]["helm.sh/hook"]
    compile(pod["spec"]["containers"][0]["command"][2], "helm test", "exec")


def test_the_readme_lists_what_the_cases_show():
    readme = (CHART / "README.md").read_text()

    assert CASES == sorted(re.findall(r"\[(\w[\w-]*)\]\(ci/\1-values\.yaml\)", readme))
    assert json.dumps(chart_file()["version"]).strip('"') in readme
