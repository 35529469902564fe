"""The chart's reliability program: off by default, without rights, asking Prometheus only."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import prometheus_operator
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
)
from peerwatch_common.settings.load import validated
from peerwatch_reliability.process.command_line import parse
from peerwatch_reliability.settings.config import ReliabilityConfig

if TYPE_CHECKING:
    from pathlib import Path

ON: dict[str, Any] = {"enabled": True}
DOCUMENT = (ROOT / "docs" / "reliability.md").read_text()


def settings_of(rendered: list[dict[str, Any]], folder: Path) -> ReliabilityConfig:
    """Return the settings as the program takes them."""
    text = only(rendered, "ConfigMap", "reliability")["data"]["reliability.yaml"]
    (folder / "token").write_text("a-token")
    # The only file that must be there.
    text = text.replace("/etc/peerwatch-prometheus", os.fspath(folder))
    return validated(ReliabilityConfig, yaml.safe_load(text))


def test_it_is_off_by_default() -> None:
    assert [] == [e for e in case_objects("default") if "reliability" in e["metadata"]["name"]]
    assert "reliability" not in notes_of({})


def test_the_program_takes_its_settings(tmp_path: Path) -> None:
    rendered = case_objects("reliability")
    settings = settings_of(rendered, tmp_path)
    workload = only(rendered, "StatefulSet", "reliability")
    container = container_of(workload)
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    secrets = {
        each["name"]: each["secret"]["secretName"]
        for each in pod_of(workload)["spec"]["volumes"]
        if "secret" in each
    }

    assert settings.prometheus is not None
    assert ("kubernetes", "https://prometheus.example.com") == (
        settings.scheduler,
        settings.prometheus.url,
    )
    assert {"prometheus": "peerwatch-prometheus", "web": "peerwatch-web"} == secrets
    assert "/etc/peerwatch-prometheus" == mounts["prometheus"]
    assert f"{mounts['web']}/web-config.yaml" == os.fspath(settings.web.config_file or "")
    assert [container["ports"][0]["containerPort"]] == [settings.listen.port]
    assert ["peerwatch-reliability"] == container["command"]
    options = parse(container["args"])
    assert ("run", f"{mounts['config']}/reliability.yaml") == (options.command, str(options.config))
    # Probes have no certificate to check the server's by.
    assert {"port": "http"} == container["readinessProbe"]["tcpSocket"]


def test_without_settings_it_reads_the_prometheus_of_the_chart(tmp_path: Path) -> None:
    rendered = objects({"reliability": ON | {"config": {"prometheus": {"timeout_seconds": 30}}}})
    found = settings_of(rendered, tmp_path).prometheus

    assert found is not None
    assert ("http://prometheus-operated.monitoring.svc:9090", 30) == (
        found.url,
        found.timeout_seconds,
    )


def test_it_asks_for_the_tenant_of_the_charts_server_and_of_no_other(tmp_path: Path) -> None:
    values = {"prometheus": {"headers": {"X-Scope-OrgID": "training"}}, "reliability": ON}
    own = values | {"reliability": ON | {"config": {"prometheus": {"url": "http://thanos:9090"}}}}

    for each, headers in ((values, {"X-Scope-OrgID": "training"}), (own, {})):
        found = settings_of(objects(each), tmp_path).prometheus
        assert found is not None
        assert headers == found.headers


def test_the_values_in_the_document_are_taken(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n# values\.yaml\n(.*?)```", DOCUMENT, re.DOTALL)

    assert "kubernetes" == settings_of(objects(yaml.safe_load(shown)), tmp_path).scheduler


def test_it_has_no_rights() -> None:
    rendered = objects({"reliability": ON})
    pod = pod_of(only(rendered, "StatefulSet", "reliability"))["spec"]

    assert [] == of_kind(rendered, "ClusterRole") + of_kind(rendered, "Role")
    assert [] == [each for each in pod["volumes"] if "projected" in each]


@pytest.mark.parametrize(
    ("kind", "endpoints"),
    [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")],
)
def test_a_monitor_has_it_scraped(kind: str, endpoints: str) -> None:
    values = {"cluster": "west", "reliability": ON | {"monitor": {"kind": kind}}}
    found = only(objects(values), kind)
    (endpoint,) = found["spec"][endpoints]

    prometheus_operator.validate(found)
    assert {"path": "/metrics", "port": "http", "honorLabels": True, "interval": "30s"} == {
        key: endpoint[key] for key in ("path", "port", "honorLabels", "interval")
    }
    assert {"instance", "cluster"} == {each["targetLabel"] for each in endpoint["relabelings"]}
    assert "set reliability.monitor.kind" in notes_of({"reliability": ON})
    assert "set reliability.monitor.kind" not in notes_of(values)


def test_only_its_port_is_open_to_whom_the_values_say() -> None:
    policy = only(case_objects("reliability"), "NetworkPolicy", "reliability")["spec"]
    (rule,) = policy["ingress"]

    assert [{"port": "http", "protocol": "TCP"}] == rule["ports"]
    assert 1 == len(rule["from"])
    off = objects({"reliability": ON | {"networkPolicy": {"enabled": False}}})
    assert [] == of_kind(off, "NetworkPolicy", "reliability")


def test_new_settings_make_a_new_pod() -> None:
    def checksum(**values: Any) -> str:
        workload = only(objects({"reliability": ON | values}), "StatefulSet", "reliability")
        return pod_of(workload)["metadata"]["annotations"]["checksum/config"]

    assert checksum() == checksum(logLevel="debug")
    assert checksum() != checksum(config={"nodes": 10})


FILE = {"prometheus": {"token_file": "/etc/peerwatch-prometheus/token"}}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"port": 80}, "reliability.port: 80 is below 1024"),
        ({"config": {"listen": {}}}, "reliability.config.listen: is set by the chart"),
        ({"config": {"web": {"config_file": "/x"}}}, "reliability.config.web.config_file: is set"),
        ({"config": FILE}, "is not there while reliability.prometheusSecret is empty"),
        ({"config": {"nodess": 3}}, "nodess"),
        ({"podAnnotations": {"checksum/config": "a"}}, "reliability.podAnnotations"),
        ({"resources": {"limits": {"memory": "lots"}}}, "reliability.resources.limits.memory"),
        ({"podLabels": {"a b": "c"}}, "reliability.podLabels"),
        (
            {"monitor": {"scheme": "https"}},
            "but reliability.webConfigSecret is empty, so its pods serve plain HTTP",
        ),
        ({"monitor": {"labels": {"a b": "c"}}}, "reliability.monitor.labels"),
        ({"monitor": {"interval": "5"}}, 'reliability.monitor.interval: "5" is no duration'),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal({"reliability": ON | values})


def test_no_server_of_its_own_is_the_charts() -> None:
    assert objects({"reliability": ON | {"config": {"prometheus": None}}})


@pytest.mark.parametrize("detector", [{"enabled": False}, {"existingSecret": "peerwatch-detector"}])
def test_it_needs_a_server_also_where_the_detector_needs_none(detector: dict[str, Any]) -> None:
    values = {"prometheus": {"url": ""}, "detector": detector, "reliability": ON}
    own = ON | {"config": {"prometheus": {"url": "http://thanos:9090"}}}

    assert "prometheus.url: is empty; give the address of the server from which" in refusal(values)
    assert objects(values | {"reliability": own})


def test_a_url_that_both_programs_lack_is_one_mistake() -> None:
    said = refusal({"prometheus": {"url": ""}, "reliability": ON})

    assert 1 == said.count("prometheus.url: is empty")
