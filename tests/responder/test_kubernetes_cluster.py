"""What Kubernetes says of its nodes; what it does not say is unknown."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from pydantic import ValidationError

from fake_kubernetes import RULES, TOKEN, FakeKubernetes, serving
from kubernetes_cases import TARGET, actions_at, api_at, cluster_at
from peerwatch_common.errors import ConfigError
from peerwatch_responder.action import UnknownError
from peerwatch_responder.actions.kubernetes.api import Api
from peerwatch_responder.actions.kubernetes.cluster import KubernetesCluster, KubernetesOptions
from peerwatch_responder.actions.kubernetes.server import Access, ServerOptions, access
from peerwatch_responder.settings.load import load_settings


@pytest.fixture
def api():
    fake = FakeKubernetes()
    for number in range(5):
        fake.node(f"gpu{number}", {"nvidia.com/gpu.present": "true"})
    fake.node("control", {"node-role.kubernetes.io/control-plane": ""})
    return fake


@pytest.fixture
def url(api):
    with serving(api) as address:
        yield address


def taken(api, node):
    return api.nodes[node]["spec"]


def test_who_has_taken_a_node_out(api, url):
    taken(api, "gpu0")["unschedulable"] = True
    step = actions_at(url)["cordon"].steps(TARGET)[0]
    step.do(step.inspect().before)
    taken(api, "gpu2")["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    taken(api, "gpu3")["taints"] = [
        {"key": "peerwatch/faulty", "value": "x", "effect": "NoExecute"}
    ]
    taken(api, "gpu4")["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    names = ("gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gone", "../pods")
    owners = cluster_at(url).owners([("", name) for name in names])
    assert {node: owner for (_, node), owner in owners.items()} == {
        "gpu0": "other",
        "gpu1": "ours",
        "gpu2": "other",
        "gpu3": "ours",
        "gpu4": "nobody",
    }


def test_many_nodes_are_listed_at_once_and_the_same(api, url):
    for number in range(5, 100):
        api.node(f"gpu{number}", unschedulable=number % 2 == 0)
    places = [("", name) for name in api.nodes]
    owners = cluster_at(url).owners(places)
    assert Counter(owners.values()) == {"other": 47, "nobody": 54}
    assert {path.partition("?")[0] for _, path, *_ in api.asked} == {"/api/v1/nodes"}


def test_a_list_is_read_to_its_end_in_pages(api, url):
    for number in range(5, 605):
        api.node(f"gpu{number}")
    assert cluster_at(url).size() == 606
    assert len(api.asked) == 3


def test_only_nodes_of_the_selector_count_and_are_known(api, url):
    cluster = cluster_at(url, node_selector="nvidia.com/gpu.present=true")
    assert cluster.size() == 5
    assert cluster.owners([("", "control"), ("", "gpu1")]) == {("", "gpu1"): "nobody"}


def test_nodes_of_another_cluster_are_unknown(url):
    places = [("east", "gpu1"), ("west", "gpu1"), ("", "gpu1")]
    assert cluster_at(url, name="east").owners(places) == {("east", "gpu1"): "nobody"}
    assert cluster_at(url).owners(places) == {("", "gpu1"): "nobody"}


def test_the_control_plane_our_own_node_and_what_a_label_says_are_protected(api, url):
    api.nodes["gpu3"]["metadata"]["labels"]["peerwatch/managed"] = "false"
    options = KubernetesOptions(name="east")
    cluster = KubernetesCluster(options, api_at(url), own_node="gpu4")
    expected = {("east", "control"), ("east", "gpu3"), ("east", "gpu4")}
    assert cluster.protected() == expected


def test_what_cannot_be_listed_is_unknown_and_what_was_known_is_forgotten(api, url):
    cluster = cluster_at(url)
    assert cluster.size() == 6
    for fault in ("cut", 500, 403, "half"):
        api.fault = lambda *_, fault=fault: fault
        for ask in (cluster.size, cluster.protected, lambda: cluster.owners([("", "gpu1")])):
            with pytest.raises(UnknownError):
                ask()
    api.fault = lambda *_: None
    assert cluster.size() == 6


def test_half_a_list_is_no_list(api, url):
    for number in range(5, 505):
        api.node(f"gpu{number}")
    api.fault = lambda _, path: 500 if "continue" in path else None
    with pytest.raises(UnknownError, match="500"):
        cluster_at(url).size()


def test_the_number_is_kept_for_a_while_but_owners_never(api, url):
    now = [0.0]
    cluster = KubernetesCluster(
        KubernetesOptions(refresh_seconds=15), api_at(url), lambda: now[0], own_node=""
    )
    assert cluster.size() == 6
    api.node("new")
    taken(api, "gpu1")["unschedulable"] = True
    assert (cluster.size(), cluster.owners([("", "gpu1")])) == (6, {("", "gpu1"): "other"})
    now[0] = 16.0
    assert cluster.size() == 7


def test_a_right_that_is_missing_is_named(api, url):
    api.rules = [each for each in RULES if each["resources"] != ["nodes"]]
    with pytest.raises(UnknownError, match="may not list nodes: 403"):
        cluster_at(url).size()


# How the server is reached


def test_in_a_pod_everything_is_found_and_a_renewed_token_is_read(tmp_path):
    (tmp_path / "token").write_text("first\n")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS": "6443"}
    ca_file = os.fspath(tmp_path / "ca.crt")
    found = access(ServerOptions(), tmp_path, environment)
    assert found == Access("https://10.0.0.1:6443", "first", ca_file)
    (tmp_path / "token").write_text("second\n")
    assert access(ServerOptions(), tmp_path, environment).token == "second"
    environment["KUBERNETES_SERVICE_HOST"] = "fd00::1"
    assert access(ServerOptions(), tmp_path, environment).url == "https://[fd00::1]:6443"


def test_a_token_that_no_header_can_have_is_told(tmp_path, url):
    token = tmp_path / "token"
    # As editors of Windows write it.
    token.write_text("first\n", encoding="utf-8-sig")
    options = ServerOptions(url=url, token_file=token)
    assert access(options).token == "first"
    for content in ("first€", "first\nsecond"):
        token.write_text(content)
        with pytest.raises(UnknownError, match=r"cannot be sent: .*token has characters") as caught:
            Api(options, wait=lambda _: None).get("get nodes", "/api/v1/nodes/n1")
        assert "first" not in str(caught.value)


def test_outside_of_a_pod_without_an_address_nothing_is_known(tmp_path):
    with pytest.raises(UnknownError, match=r"cluster\.server\.url is unset"):
        access(ServerOptions(), tmp_path, {})
    with pytest.raises(UnknownError, match="cannot be read"):
        access(ServerOptions(), tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_the_settings_name_another_server(tmp_path, api, url):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    options = KubernetesOptions(server={"url": url + "/", "token_file": token})
    assert KubernetesCluster(options, own_node="").size() == 6
    token.write_text("expired")
    with pytest.raises(UnknownError, match="401"):
        KubernetesCluster(options, own_node="").size()


@pytest.mark.parametrize(
    "options",
    [
        {"server": {"url": "ftp://x"}},
        {"server": {"url": "https://x/path"}},
        {"server": {"token_file": "/no/such/file"}},
        {"server": {"timeout_seconds": 0}},
        {"node_selector": "a=b&limit=1"},
        {"refresh_seconds": 1000},
        {"namespace": "x"},
    ],
)
def test_settings_with_mistakes_are_refused(options):
    with pytest.raises(ValidationError):
        KubernetesOptions(**options)


def test_the_settings_file_names_the_cluster_and_its_actions(tmp_path):
    path = tmp_path / "responder.yaml"
    path.write_text(
        "alertmanager: {url: 'http://a:9093'}\n"
        "cluster: {type: kubernetes, server: {url: 'https://k:6443'}}\n"
        "policy: {rules: [{name: r, match: {severity: critical}, do: [kubernetes_cordon, out]}]}\n"
        "actions: {out: {type: kubernetes_evict, pods_by: job_id}}\n"
    )
    settings = load_settings(path)
    assert isinstance(settings.cluster, KubernetesCluster)
    assert settings.take_out == {"kubernetes_cordon"}
    path.write_text(path.read_text().replace("type: kubernetes, server", "type: driver, server"))
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert "needs cluster.type kubernetes" in "\n".join(caught.value.mistakes)
