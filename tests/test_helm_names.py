"""Names, directories and variables of the user arrive as given, whatever YAML makes of them."""

from __future__ import annotations

import kubernetes_validate
import pytest

from helm_chart import container_of, objects, only, pod_of

NEWEST_KUBERNETES = "1.37"
OPERATOR = "monitoring.coreos.com/v1"


@pytest.mark.parametrize("name", ["2024", "on", "no", "null", "0x1f", "1e3"])
def test_names_that_yaml_reads_as_something_else_stay_names(name):
    pod = {"priorityClassName": name, "serviceAccount": {"name": name}}
    values = {
        "fullnameOverride": "peerwatch",
        "image": {"pullSecrets": [{"name": name}]},
        "exporter": {
            "runtimeClassName": name,
            "webConfigSecret": name,
            "pingsSecret": name,
            "monitor": {"kind": "ServiceMonitor"},
            **pod,
        },
        "detector": {"existingSecret": name, "webConfigSecret": name, "replicas": 2},
        "checks": {"enabled": True, "runtimeClassName": name},
        "responder": {
            "enabled": True,
            "tokenSecret": name,
            "webConfigSecret": name,
            "journal": {"storageClass": name},
        },
        "reliability": {"enabled": True, "prometheusSecret": name, "webConfigSecret": name},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True, "namespace": name},
    }
    rendered = objects(values, name=name, namespace=name)

    for manifest in rendered:
        assert name == manifest["metadata"].get("namespace", name)
        assert name == manifest["metadata"]["labels"]["app.kubernetes.io/instance"]
        if manifest["apiVersion"] != OPERATOR:
            assert kubernetes_validate.validate(manifest, NEWEST_KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["true", "no", "y"])
def test_a_name_of_the_chart_stays_a_name(name):
    for manifest in objects({"nameOverride": name}):
        assert name == manifest["metadata"]["labels"]["app.kubernetes.io/name"]


@pytest.mark.parametrize(
    ("program", "own"),
    [
        ("exporter", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"]),
        ("detector", ["NUMBA_CACHE_DIR"]),
        ("checks", ["INTERVAL_SECONDS", "NODE_NAME", "NVIDIA_VISIBLE_DEVICES"]),
        ("responder", ["NODE_NAME"]),
        ("reliability", []),
    ],
)
def test_a_variable_that_the_user_sets_comes_once(program, own):
    given = [{"name": name, "value": "mine"} for name in (*own, "HTTPS_PROXY")]
    values = {"enabled": True, "env": given}
    if program == "responder":
        values["tokenSecret"] = "token"
    rendered = objects({program: values})
    kind = "DaemonSet" if program in ("exporter", "checks") else "StatefulSet"
    env = container_of(only(rendered, kind, program))["env"]

    # Server-side apply refuses a name that is there twice.
    assert len({variable["name"] for variable in env}) == len(env)
    assert given == env[-len(given) :]


def test_directories_may_have_any_character():
    directory = "/shared/run, {a}: #1"
    values = {
        "heartbeatDirectory": directory,
        "mappingDirectory": directory,
        "kubeletDirectory": directory,
        "privileges": {"processes": True},
    }
    daemonset = only(objects({"exporter": values}), "DaemonSet")
    paths = {
        volume["name"]: volume["hostPath"]["path"]
        for volume in pod_of(daemonset)["spec"]["volumes"]
        if "hostPath" in volume
    }

    assert (directory, directory) == (paths["heartbeat"], paths["jobs"])
    assert f"{directory}/pod-resources" == paths["pod-resources"]


def test_the_test_pod_may_run_where_the_detector_may():
    # As on a cluster all of whose nodes have GPUs.
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    selector = {"kubernetes.io/os": "linux", "pool": "gpu"}
    rendered = objects({"detector": {"tolerations": tolerations, "nodeSelector": selector}})
    pod = only(rendered, "Pod")["spec"]

    assert (tolerations, selector) == (pod["tolerations"], pod["nodeSelector"])
