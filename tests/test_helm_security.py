"""What pods of the chart may do: the least that gives what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from helm_chart import (
    CASES,
    case_objects,
    container_of,
    objects,
    of_kind,
    only,
    pod_of,
    pods_of,
    refusal,
)

CAPABILITIES = ["SYSLOG", "SYS_PTRACE", "DAC_READ_SEARCH"]


def exporter(**privileges: Any) -> dict[str, Any]:
    """Return the exporter's pod with these privileges only."""
    none = {"hostNetwork": False, "kubelet": False, "processes": False, "kernelLog": "off"}
    values = {"exporter": {"privileges": none | privileges}}
    return pod_of(only(objects(values), "DaemonSet"))


def security(pod: dict[str, Any]) -> dict[str, Any]:
    return pod["spec"]["containers"][0]["securityContext"]


def volumes(pod: dict[str, Any]) -> set[str]:
    return {volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume}


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_confined(case):
    for pod in pods_of(case_objects(case)):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert {"type": "RuntimeDefault"} == spec["securityContext"]["seccompProfile"]
        assert not spec.get("hostIPC", False)
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert {"memory"} <= container["resources"]["limits"].keys()
            assert {"cpu", "memory"} == container["resources"]["requests"].keys()
            if not context.get("privileged", False):
                assert context["allowPrivilegeEscalation"] is False
                assert ["ALL"] == context["capabilities"]["drop"]


@pytest.mark.parametrize("case", CASES)
def test_no_account_has_a_token_or_a_right(case):
    rendered = case_objects(case)

    assert all(
        account["automountServiceAccountToken"] is False
        for account in of_kind(rendered, "ServiceAccount")
    )
    # Only the responder acts (test_helm_responder.py).
    assert [] == [
        manifest["kind"]
        for manifest in rendered
        if "Role" in manifest["kind"]
        and manifest["metadata"]["labels"]["app.kubernetes.io/component"] != "responder"
    ]
    assert [] == of_kind(rendered, "Secret")


@pytest.mark.parametrize("case", CASES)
def test_nothing_of_the_node_can_be_written(case):
    for pod in pods_of(case_objects(case)):
        writable = {
            mount["name"]
            for container in pod["spec"]["containers"]
            for mount in container.get("volumeMounts", [])
            if not mount.get("readOnly", False)
        }
        of_node = {
            volume["name"] for volume in pod["spec"].get("volumes", []) if "hostPath" in volume
        }
        of_checks = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "checks"
        assert ({"results"} if of_checks else set()) == writable & of_node


@pytest.mark.parametrize("case", CASES)
def test_the_detector_is_never_root_and_sees_nothing_of_the_node(case):
    for pod in pods_of(case_objects(case)):
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "detector":
            spec = pod["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert not {"hostNetwork", "hostPID"} & spec.keys()
            assert set() == {
                volume["name"] for volume in spec.get("volumes", []) if "hostPath" in volume
            }


@pytest.mark.parametrize("case", [case for case in CASES if case != "joined"])
def test_nobody_is_privileged_who_was_not_told_to_be(case):
    assert [] == [
        pod
        for pod in pods_of(case_objects(case))
        if any(
            container["securityContext"].get("privileged")
            for container in pod["spec"]["containers"]
        )
    ]


def test_by_default_the_exporter_is_root_without_any_capability():
    pod = pod_of(only(case_objects("default"), "DaemonSet"))

    assert 0 == pod["spec"]["securityContext"]["runAsUser"]
    assert {"drop": ["ALL"]} == security(pod)["capabilities"]
    assert (True, False) == (pod["spec"]["hostNetwork"], pod["spec"]["hostPID"])
    assert {"/proc", "/sys", "/var/lib/kubelet/pod-resources"} == volumes(pod)


def test_without_privileges_the_exporter_is_an_ordinary_user():
    pod = exporter()

    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert {"drop": ["ALL"]} == security(pod)["capabilities"]
    assert (False, False) == (pod["spec"]["hostNetwork"], pod["spec"]["hostPID"])
    assert {"/proc", "/sys"} == volumes(pod)


def test_each_privilege_brings_what_it_needs_and_nothing_else():
    network = exporter(hostNetwork=True)
    kubelet = exporter(kubelet=True)
    processes = exporter(processes=True)
    log = exporter(kernelLog="device", kernelLogDevice="example.com/kmsg")

    assert network["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "/var/lib/kubelet/pod-resources" in volumes(kubelet)
    assert "add" not in security(kubelet)["capabilities"]
    assert ["SYS_PTRACE", "DAC_READ_SEARCH"] == security(processes)["capabilities"]["add"]
    assert processes["spec"]["hostPID"] is True
    assert ["SYSLOG"] == security(log)["capabilities"]["add"]
    assert "1" == str(log["spec"]["containers"][0]["resources"]["limits"]["example.com/kmsg"])
    assert "/dev/kmsg" not in volumes(log)


def test_on_the_nodes_network_names_of_services_are_found():
    # The node's own resolver knows none, and the document's example has one as pings.peers_name.
    pods = exporter(hostNetwork=True), exporter(hostNetwork=False)

    assert ["ClusterFirstWithHostNet", None] == [pod["spec"].get("dnsPolicy") for pod in pods]


def test_filesystems_and_systemd_are_mounted_read_only_and_need_no_capability():
    files, bus = exporter(filesystems=True), exporter(systemd=True)

    assert {"/proc", "/sys", "/"} == volumes(files)
    assert files["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "--path.rootfs=/host/root" in files["spec"]["containers"][0]["args"]
    assert {"/proc", "/sys", "/run/dbus"} == volumes(bus)
    assert 0 == bus["spec"]["securityContext"]["runAsUser"]
    for pod in (files, bus):
        assert {"drop": ["ALL"]} == security(pod)["capabilities"]
        assert all(mount["readOnly"] for mount in pod["spec"]["containers"][0]["volumeMounts"])


def test_logs_are_mounted_read_only_where_they_are_on_the_node():
    logs = {"enabled": True, "directories": ["/shared/slurm logs", "/var/log/pods"]}
    values = {
        "exporter": {
            "logs": logs,
            "config": {"logs": {"first_error": True, "paths": ["/shared/slurm logs/*.out"]}},
            "privileges": {"kubelet": False, "processes": True},
        }
    }
    rendered = objects(values)
    pod = pod_of(only(rendered, "DaemonSet"))
    config = yaml.safe_load(only(rendered, "ConfigMap", "exporter")["data"]["exporter.yaml"])
    mounts = {
        mount["mountPath"]: mount["readOnly"]
        for mount in pod["spec"]["containers"][0]["volumeMounts"]
        if mount["name"].startswith("logs-")
    }

    assert {"/proc", "/sys", "/shared/slurm logs", "/var/log/pods"} == volumes(pod)
    assert {"/shared/slurm logs": True, "/var/log/pods": True} == mounts
    assert {
        "enabled": True,
        "first_error": True,
        "paths": ["/shared/slurm logs/*.out"],
        "pods_directory": "/var/log/pods",
    } == config["logs"]


def test_a_kernel_log_that_is_off_needs_no_quotes():
    # YAML 1.1, which Helm reads, makes false of off.
    text = "exporter: {privileges: {kernelLog: off, processes: true}}"

    assert objects(yaml.safe_load(text)) == objects(yaml.safe_load(text.replace("off", '"off"')))
    on = {"exporter": {"privileges": {"kernelLog": True}}}
    assert "value must be one of 'off'" in refusal(on)


def test_without_a_directory_of_pods_none_is_read():
    logs = {"enabled": True, "podsDirectory": ""}
    rendered = objects({"exporter": {"logs": logs, "privileges": {"processes": True}}})
    config = yaml.safe_load(only(rendered, "ConfigMap", "exporter")["data"]["exporter.yaml"])

    assert {"enabled": True, "pods_directory": None} == config["logs"]


def test_nobodys_logs_are_read_by_default():
    rendered = case_objects("default")

    assert "logs" not in only(rendered, "ConfigMap", "exporter")["data"]["exporter.yaml"]
    assert not {path for path in volumes(pod_of(only(rendered, "DaemonSet"))) if "log" in path}


def test_privileged_is_only_for_the_kernel_log():
    pod = exporter(kernelLog="privileged")

    assert {"privileged": True, "readOnlyRootFilesystem": True} == security(pod)
    assert "/dev/kmsg" in volumes(pod)


def test_what_the_exporter_cannot_read_it_is_told_not_to_try():
    def config(**privileges: Any) -> str:
        values = {
            "exporter": {"privileges": privileges, "config": {"collectors": {"disabled": ["edac"]}}}
        }
        return only(objects(values), "ConfigMap", "exporter")["data"]["exporter.yaml"]

    assert "- edac\n  - ranks\njobs:\n  environment: false\n" in config()
    assert "- edac\n" in config(processes=True)
    assert "ranks" not in config(processes=True)
    assert "pod_resources_socket: null" in config(kubelet=False)


def test_the_detector_compiles_into_a_folder_that_it_may_write():
    workload = only(case_objects("default"), "StatefulSet")
    container = container_of(workload)
    (cache,) = [
        variable["value"] for variable in container["env"] if variable["name"] == "NUMBA_CACHE_DIR"
    ]
    (mount,) = [
        candidate for candidate in container["volumeMounts"] if not candidate.get("readOnly")
    ]
    (volume,) = [
        candidate
        for candidate in pod_of(workload)["spec"]["volumes"]
        if candidate["name"] == mount["name"]
    ]

    assert cache.startswith(mount["mountPath"] + "/")
    assert "emptyDir" in volume


def test_only_the_port_of_the_detector_is_open():
    policy = only(case_objects("default"), "NetworkPolicy")["spec"]
    confined = only(case_objects("full"), "NetworkPolicy")["spec"]

    assert ["Ingress"] == policy["policyTypes"]
    assert [{"ports": [{"port": "http", "protocol": "TCP"}]}] == policy["ingress"]
    assert ["Ingress", "Egress"] == confined["policyTypes"]
    assert 2 == len(confined["ingress"][0]["from"])
    # OpenShift's DNS pods answer on 5353, and a policy is asked about the pods' ports.
    assert [(port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")] == [
        (each["port"], each["protocol"]) for each in confined["egress"][-1]["ports"]
    ]


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
def test_probes_ask_for_health_and_only_the_port_where_a_login_is_needed(kind: str):
    def probes(case: str) -> list[Any]:
        container = container_of(only(case_objects(case), kind))
        return [container[name] for name in ("livenessProbe", "readinessProbe")]

    asked = [probe["httpGet"]["path"] for probe in probes("default")]
    assert ["/-/healthy", "/-/ready"] == asked
    assert all("tcpSocket" in probe for probe in probes("full"))
