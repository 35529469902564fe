"""Where the nodes are: Slurm's topology.conf as rules, labels of Kubernetes nodes on targets."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from helm_chart import case_objects, objects, of_kind
from peerwatch_demo.stack.servers import find_program

SCRIPT = Path(__file__).resolve().parents[1] / "docs" / "slurm" / "topology_rules.py"
places_of = runpy.run_path(str(SCRIPT))["places_of"]
expand = runpy.run_path(str(SCRIPT))["expand"]

TREE = """\
# Two leaves below a spine, and a block of NVLink.
SwitchName=leaf1 Nodes=gpu[001-002,007]   # the first
switchname=leaf2 nodes=login,gpu[008-009] \\
    LinkSpeed=400
SwitchName=spine Switches=leaf[1-2]
BlockName=r1 Nodes=gpu[001-002]
BlockSizes=2
"""


def written(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "topology.conf").write_text(text)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "topology.conf"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_leaf_is_the_switch_with_the_nodes_and_a_pod_the_switch_above_it() -> None:
    first = {"topology_leaf": "leaf1", "topology_pod": "spine", "topology_rack": "r1"}
    second = {"topology_leaf": "leaf2", "topology_pod": "spine"}

    assert {
        "gpu001": first,
        "gpu002": first,
        "gpu007": {"topology_leaf": "leaf1", "topology_pod": "spine"},
        **dict.fromkeys(("login", "gpu008", "gpu009"), second),
    } == places_of(TREE)


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("", []),
        ("tux0", ["tux0"]),
        ("n[8-11],m", ["n8", "n9", "n10", "n11", "m"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
        ("n[3]-ib", ["n3-ib"]),
    ],
)
def test_a_host_list_is_expanded_as_slurm_does(hosts: str, names: list[str]) -> None:
    assert names == expand(hosts)


def test_promtool_takes_what_is_written(tmp_path: Path) -> None:
    done = written(tmp_path, TREE, "--cluster", "c1")
    file = tmp_path / "topology.rules.yaml"
    file.write_text(done.stdout)
    command = [find_program("promtool"), "check", "rules", str(file)]

    (group,) = yaml.safe_load(done.stdout)["groups"]
    assert 6 == len(group["rules"])
    assert {"node_topology_info"} == {rule["record"] for rule in group["rules"]}
    assert {"c1"} == {rule["labels"]["cluster"] for rule in group["rules"]}
    assert 0 == subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SwitchName=a Nodes=n[1-2", "brackets that do not match"),
        ("SwitchName=a Nodes=n[2-1]", "range '2-1' has 0 numbers"),
        ("SwitchName=a Nodes=n[x-y]", "expected numbers such as 001-016, not 'x-y'"),
        ("SwitchName=a Nodes=n[1-9999][1-9999]", "more than 1000000 names"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "line 2: n1 is in a and in b"),
        ("topology:\n  tree", "line 1: expected NAME=VALUE, not 'topology:'"),
        ("SwitchName=a Switches=b", "no line with SwitchName or BlockName has Nodes"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    done = written(tmp_path, text)

    assert (2, "") == (done.returncode, done.stdout)
    assert said in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_the_chart_makes_target_labels_of_node_labels() -> None:
    monitors = of_kind(case_objects("full"), "PodMonitor", "exporter")
    relabelings = [
        (relabeling["sourceLabels"], relabeling["targetLabel"])
        for monitor in monitors
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
        for relabeling in endpoint["relabelings"]
        if relabeling["targetLabel"].startswith("topology_")
    ]

    assert 2 == len(monitors)
    assert [{"node": True}] * 2 == [monitor["spec"]["attachMetadata"] for monitor in monitors]
    assert [
        (["__meta_kubernetes_node_label_network_topology_nvidia_com_leaf"], "topology_leaf"),
        (["__meta_kubernetes_node_label_network_topology_nvidia_com_spine"], "topology_pod"),
    ] * 2 == relabelings


def test_without_node_labels_the_chart_asks_for_no_nodes() -> None:
    monitor = {"monitor": {"kind": "PodMonitor"}}
    text = json.dumps(of_kind(objects({"exporter": monitor}), "PodMonitor", "exporter"))

    assert "topology_" not in text
    assert "attachMetadata" not in text
