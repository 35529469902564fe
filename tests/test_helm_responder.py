"""The chart's responder: off by default, with the least rights, and a journal that stays."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import prometheus_operator
from fake_kubernetes import RULES
from helm_chart import (
    ROOT,
    case_objects,
    container_of,
    notes_of,
    objects,
    of_kind,
    only,
    pod_of,
    refusal,
    values_of,
)
from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster
from peerwatch_responder.process.command_line import parse
from peerwatch_responder.settings.load import load_settings

if TYPE_CHECKING:
    from pathlib import Path

ON: dict[str, Any] = {"enabled": True, "tokenSecret": "peerwatch-responder"}
RULE: dict[str, Any] = {"name": "drain", "match": {"node": ".+"}, "do": ["kubernetes_cordon"]}
DOCUMENT = (ROOT / "docs" / "responder.md").read_text()


def workload(**values: Any) -> dict[str, Any]:
    return only(objects({"responder": ON | values}), "StatefulSet", "responder")


def settings_of(rendered: list[dict[str, Any]], folder: Path) -> Any:
    """Return the settings as the program takes them."""
    text = only(rendered, "ConfigMap", "responder")["data"]["responder.yaml"]
    (folder / "token").write_text("a-token")
    # The only file that must be there.
    path = folder / "responder.yaml"
    path.write_text(text.replace("/etc/peerwatch-token", os.fspath(folder)))
    return load_settings(path)


def test_nothing_acts_by_default() -> None:
    rendered = case_objects("default")

    assert [] == [each for each in rendered if "responder" in each["metadata"]["name"]]
    assert "responder" not in notes_of({})


def test_the_program_takes_its_settings(tmp_path: Path) -> None:
    rendered = case_objects("responder")
    settings = settings_of(rendered, tmp_path)
    container = container_of(only(rendered, "StatefulSet", "responder"))
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}

    assert isinstance(settings.cluster, KubernetesCluster)
    assert settings.config.dry_run is False
    assert {"kubernetes_cordon"} == settings.take_out
    assert "west" == settings.config.cluster.options["name"]
    assert mounts["journal"] == os.fspath(settings.config.journal.parent)
    assert [container["ports"][0]["containerPort"]] == [settings.config.listen.port]
    assert ["peerwatch-responder"] == container["command"]
    options = parse(container["args"])
    assert ("run", f"{mounts['config']}/responder.yaml") == (options.command, str(options.config))


def test_it_may_do_what_its_actions_need_and_nothing_else() -> None:
    """The fake API server refuses everything else, so all its tests run with these rights."""
    rendered = case_objects("responder")
    role, binding = only(rendered, "ClusterRole"), only(rendered, "ClusterRoleBinding")
    account = only(rendered, "ServiceAccount", "responder")
    pod = pod_of(only(rendered, "StatefulSet", "responder"))["spec"]

    assert list(RULES) == role["rules"]
    assert role["metadata"]["name"] == binding["roleRef"]["name"]
    assert [("ServiceAccount", account["metadata"]["name"], "training")] == [
        (each["kind"], each["name"], each["namespace"]) for each in binding["subjects"]
    ]
    assert account["metadata"]["name"] == pod["serviceAccountName"]
    (projected,) = [each["projected"] for each in pod["volumes"] if "projected" in each]
    assert {"path": "token", "expirationSeconds": 3600} == projected["sources"][0][
        "serviceAccountToken"
    ]


def test_logs_of_pods_may_be_read_only_where_advice_is_asked() -> None:
    values = values_of("responder")
    values["responder"]["config"]["retry"] = {"enabled": True}
    rules = only(objects(values), "ClusterRole")["rules"]

    assert [*RULES, {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}] == rules


def test_the_document_names_the_same_rights() -> None:
    (shown,) = re.findall(r"```yaml\n(- \{apiGroups.*?)```", DOCUMENT, re.DOTALL)

    assert list(RULES) == yaml.safe_load(shown)


def test_the_values_in_the_document_are_taken(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n# values\.yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    rendered = objects(yaml.safe_load(shown))

    assert settings_of(rendered, tmp_path).config.dry_run is True
    assert of_kind(rendered, "ClusterRole")


def test_where_it_does_not_ask_kubernetes_it_has_no_rights(tmp_path: Path) -> None:
    rendered = objects({"responder": ON | {"config": {"cluster": {"type": "driver"}}}})
    pod = pod_of(only(rendered, "StatefulSet", "responder"))["spec"]

    assert [] == of_kind(rendered, "ClusterRole") + of_kind(rendered, "ClusterRoleBinding")
    assert [] == [each for each in pod["volumes"] if "projected" in each]
    assert "driver" == settings_of(rendered, tmp_path).config.cluster.type


def test_there_is_one_and_its_journal_outlives_it() -> None:
    found = workload(journal={"size": "5Gi", "storageClass": "fast"})
    (claim,) = found["spec"]["volumeClaimTemplates"]

    assert 1 == found["spec"]["replicas"]
    assert ("fast", "5Gi") == (
        claim["spec"]["storageClassName"],
        claim["spec"]["resources"]["requests"]["storage"],
    )
    assert "WARNING" not in notes_of({"responder": ON})


def test_a_journal_without_a_volume_is_warned_of() -> None:
    values = ON | {"journal": {"size": ""}}
    (volume,) = [
        each for each in pod_of(workload(**values))["spec"]["volumes"] if each["name"] == "journal"
    ]

    assert "emptyDir" in volume
    assert "volumeClaimTemplates" not in workload(**values)["spec"]
    assert "WARNING: its journal is in an emptyDir." in notes_of({"responder": values})


def test_the_notes_say_whether_it_acts() -> None:
    assert "It is a dry run until" in notes_of({"responder": ON})
    assert "It acts:" in notes_of({"responder": ON | {"config": {"dry_run": False}}})


def test_only_its_port_is_open_to_whom_the_values_say() -> None:
    policy = only(case_objects("responder"), "NetworkPolicy", "responder")["spec"]

    assert ["Ingress"] == policy["policyTypes"]
    (rule,) = policy["ingress"]
    assert [{"port": "http", "protocol": "TCP"}] == rule["ports"]
    assert 1 == len(rule["from"])
    off = objects({"responder": ON | {"networkPolicy": {"enabled": False}}})
    assert [] == of_kind(off, "NetworkPolicy", "responder")


@pytest.mark.parametrize(
    ("kind", "endpoints"),
    [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")],
)
def test_a_monitor_has_it_scraped_without_a_login(kind: str, endpoints: str) -> None:
    monitor = {"kind": kind, "labels": {"release": "stack"}}
    found = only(objects({"cluster": "west", "responder": ON | {"monitor": monitor}}), kind)
    (endpoint,) = found["spec"][endpoints]

    prometheus_operator.validate(found)
    assert "stack" == found["metadata"]["labels"]["release"]
    assert {"path": "/metrics", "port": "http", "scheme": "http", "honorLabels": True} == {
        key: endpoint[key] for key in ("path", "port", "scheme", "honorLabels")
    }
    assert {"authorization", "basicAuth", "bearerTokenSecret"}.isdisjoint(endpoint)
    assert ("5s", "5s") == (endpoint["interval"], endpoint["scrapeTimeout"])
    assert {"instance", "cluster"} == {each["targetLabel"] for each in endpoint["relabelings"]}


def test_nobody_scrapes_it_by_default() -> None:
    rendered = objects({"responder": ON})

    assert [] == of_kind(rendered, "PodMonitor") + of_kind(rendered, "ServiceMonitor")
    assert "set responder.monitor.kind" in notes_of({"responder": ON})
    scraped = notes_of({"responder": ON | {"monitor": {"kind": "PodMonitor"}}})
    assert "http://pw-peerwatch-responder.training:9402/metrics" in scraped
    assert "set responder.monitor.kind" not in scraped
    off = objects({"responder": {"monitor": {"kind": "PodMonitor"}}})
    assert [] == of_kind(off, "PodMonitor")


def test_the_monitor_takes_what_is_added_to_it() -> None:
    monitor = only(case_objects("responder"), "ServiceMonitor", "responder")
    (endpoint,) = monitor["spec"]["endpoints"]

    assert ["instance", "cluster", "fleet"] == [
        each["targetLabel"] for each in endpoint["relabelings"]
    ]
    assert ["team"] == [each["targetLabel"] for each in endpoint["metricRelabelings"]]
    assert "responder.example.com" == endpoint["tlsConfig"]["serverName"]


def test_with_certificates_all_of_it_speaks_tls(tmp_path: Path) -> None:
    rendered = case_objects("responder")
    found = only(rendered, "StatefulSet", "responder")
    pod, container = pod_of(found)["spec"], container_of(found)
    (place,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "web"]
    (endpoint,) = only(rendered, "ServiceMonitor", "responder")["spec"]["endpoints"]

    assert {"name": "web", "secret": {"secretName": "peerwatch-web"}} in pod["volumes"]
    web = settings_of(rendered, tmp_path).config.web
    assert f"{place}/web-config.yaml" == os.fspath(web.config_file)
    assert "https" == endpoint["scheme"]
    # Probes have no certificate to check the server's by.
    assert {"port": "http"} == container["readinessProbe"]["tcpSocket"]
    assert {"port": "http"} == container["livenessProbe"]["tcpSocket"]
    told = notes_of(values_of("responder"))
    assert "--url https://pw-peerwatch-responder.training:9402\n" in told
    assert "http://pw-peerwatch-responder" not in told


def test_the_scrape_configuration_of_the_document_reads_what_the_chart_serves() -> None:
    (shown,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", DOCUMENT, re.DOTALL)
    (job,) = yaml.safe_load(shown)["scrape_configs"]
    (named,) = re.findall(r"`(\S+)\.peerwatch:(\d+)`", DOCUMENT)
    service = only(objects({"responder": ON}, name="peerwatch"), "Service", "responder")

    assert job["honor_labels"] is True
    assert ["responder:9402"] == job["static_configs"][0]["targets"]
    assert (service["metadata"]["name"], "9402") == named
    assert 9402 == service["spec"]["ports"][0]["port"]


def test_new_settings_make_a_new_pod() -> None:
    def checksum(**values: Any) -> str:
        return pod_of(workload(**values))["metadata"]["annotations"]["checksum/config"]

    assert checksum() == checksum(logLevel="debug")
    assert checksum() != checksum(config={"dry_run": False})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tokenSecret": ""}, "responder.tokenSecret: is empty; name a Secret"),
        ({"port": 80}, "responder.port: 80 is below 1024"),
        ({"journal": {"size": "big"}}, 'responder.journal.size: "big" is no quantity'),
        ({"config": {"journal": "/x"}}, "responder.config.journal: is set by the chart"),
        ({"config": {"policy": {"rules": [RULE]}}}, "responder.config.alertmanager: is missing"),
        (
            {"config": {"policy": {"rules": [RULE | {"advice": ["drain"]}]}}},
            'responder.config.prometheus: is missing, but the rule "drain" asks for advice',
        ),
        ({"config": {"listen": {}}}, "responder.config.listen: is set by the chart"),
        (
            {"config": {"cluster": "slurm"}},
            'responder.config.cluster: "slurm" is no section; write settings below it',
        ),
        ({"config": {"web": "x"}}, 'responder.config.web: "x" is no section'),
        ({"config": {"web": {"token_file": "/x"}}}, "responder.config.web.token_file: is set by"),
        ({"podAnnotations": {"checksum/config": "a"}}, "responder.podAnnotations: checksum/config"),
        ({"resources": {"limits": {"memory": "lots"}}}, "responder.resources.limits.memory"),
        ({"podLabels": {"a b": "c"}}, "responder.podLabels"),
        ({"config": {"web": {"config_file": "/x"}}}, "responder.config.web.config_file: is set by"),
        ({"monitor": {"scheme": "https"}}, "but responder.webConfigSecret is empty"),
        ({"monitor": {"labels": {"a b": "c"}}}, "responder.monitor.labels"),
        ({"monitor": {"interval": "5"}}, 'responder.monitor.interval: "5" is no duration'),
        ({"monitor": {"interval": "0s"}}, 'responder.monitor.interval: "0s" means the interval'),
        ({"monitor": {"scrapeTimeout": "6s"}}, 'scrapeTimeout: "6s" is longer than the interval'),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal({"responder": ON | values})


@pytest.mark.parametrize(
    "config", [{"retry": None}, {"retry": True}, {"cluster": None}, {"cluster": {"type": 3}}]
)
def test_what_is_no_setting_is_left_to_the_program(config: dict[str, Any]) -> None:
    rendered = objects({"responder": ON | {"config": config}})
    given = yaml.safe_load(only(rendered, "ConfigMap", "responder")["data"]["responder.yaml"])

    for name, value in config.items():
        assert given[name] == value or value is None


@pytest.mark.parametrize(
    "policy", [None, "none", {"rules": None}, {"rules": "none"}, {"rules": [3]}]
)
def test_what_is_no_policy_is_left_to_the_program(policy: object) -> None:
    config = {"alertmanager": {"url": "http://alertmanager:9093"}, "policy": policy}

    assert objects({"responder": ON | {"config": config}})


def test_the_systemd_unit_starts_the_program() -> None:
    unit = (ROOT / "detector" / "peerwatch-responder.service").read_text()
    (start,) = re.findall(r"^ExecStart=\S*/(\S+) (.*)$", unit, re.MULTILINE)

    assert "peerwatch-responder" == start[0]
    assert "run" == parse(start[1].split()).command
    assert "DynamicUser=yes" in unit
    assert "StateDirectory=peerwatch-responder" in unit
