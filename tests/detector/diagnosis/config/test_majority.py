"""Who is in the minority: small cases, and random clusters against an obvious, slow version."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from peerwatch_detector.diagnosis.config.keys import UNSET, Aspect, aspect_of
from peerwatch_detector.diagnosis.config.majority import (
    MOST_DEVIATIONS,
    MOST_SPLITS,
    Comparison,
    Counted,
    Deviation,
    Split,
    compare,
)

Nodes = dict[str, dict[str, str]]
ASPECTS = ("kernel.release", "gpu.vbios", "nic.mtu", "rank.NCCL_DEBUG", "rank.limit_nofile")


def counted(nodes: Nodes) -> list[Counted]:
    counts = Counter((key, value) for node in nodes.values() for key, value in node.items())
    return [Counted(key, value, number) for (key, value), number in counts.items()]


def naive(nodes: Nodes) -> tuple[set[tuple[str, str]], set[str]]:
    """Return keys and values of minorities, and the keys that are split, node by node."""
    minorities, splits = set(), set()
    aspects = {aspect_of(key).name for node in nodes.values() for key in node}
    for name in aspects:
        devices = {
            aspect_of(key).device
            for node in nodes.values()
            for key in node
            if aspect_of(key).name == name and aspect_of(key).device
        }
        for device in devices or {""}:
            values = {}
            for node, config in nodes.items():
                own, shared = Aspect(name).of(device), name
                if own in config:
                    values[node] = own, config[own]
                elif shared in config:
                    values[node] = shared, config[shared]
                elif (
                    Aspect(name).is_variable
                    and "rank.environment" in config
                    and not any(aspect_of(key).name == name for key in config)
                ):
                    values[node] = shared, UNSET
            counts = Counter(value for _, value in values.values())
            if len(values) < 3 or len(counts) < 2:
                continue
            majority = [value for value, count in counts.items() if 2 * count > len(values)]
            if not majority:
                splits.add(Aspect(name).of(device))
                continue
            minorities |= {pair for pair in values.values() if pair[1] != majority[0]}
    return minorities, splits


@pytest.mark.parametrize(
    ("key", "name", "device"),
    [
        ("gpu.vbios", "gpu.vbios", ""),
        ("gpu.3.vbios", "gpu.vbios", "3"),
        ("nic.mlx5_0:2.mtu", "nic.mtu", "mlx5_0:2"),
        ("nic.a.b.mtu", "nic.mtu", "a.b"),
        ("rank.7.NCCL_DEBUG", "rank.NCCL_DEBUG", "7"),
        ("sysctl.net.core.rmem_max", "sysctl.net.core.rmem_max", ""),
        ("", "", ""),
    ],
)
def test_a_key_says_which_device_it_is_about(key, name, device):
    aspect = aspect_of(key)

    assert (name, device) == (aspect.name, aspect.device)
    assert key == aspect.of(device)


def test_the_value_of_few_is_a_minority_and_says_what_most_have():
    nodes = {f"n{n}": {"kernel.release": "6.8"} for n in range(7)} | {"n7": {"kernel.release": "5"}}

    assert Comparison((Deviation(1, "kernel.release", "5", "6.8", 8),)) == compare(counted(nodes))


@pytest.mark.parametrize("values", ["ab", "aabb", "abc", "aabbc"])
def test_without_a_majority_nobody_is_named(values):
    nodes = {f"n{n}": {"cpu.governor": value} for n, value in enumerate(values)}
    found = compare(counted(nodes))

    assert () == found.deviations
    expected = (Split("cpu.governor", len(set(values)), len(values)),) if len(values) > 2 else ()
    assert expected == found.splits


def test_a_node_without_a_value_is_no_minority():
    nodes = {f"n{n}": {"os.release": "x"} for n in range(4)} | {"n4": {}}

    assert Comparison() == compare(counted(nodes))


def test_a_variable_that_one_node_lacks_is_unset_there_if_its_ranks_could_be_read():
    nodes = {f"n{n}": {"rank.environment": "read", "rank.NCCL_IB_HCA": "mlx5"} for n in range(4)}
    nodes |= {"n4": {"rank.environment": "read"}, "n5": {}}

    (found,) = compare(counted(nodes)).deviations
    assert Deviation(1, "rank.NCCL_IB_HCA", UNSET, "mlx5", 5) == found


def test_a_gpu_unlike_the_others_is_compared_with_nodes_whose_gpus_agree():
    nodes = {f"n{n}": {"gpu.vbios": "96.1"} for n in range(4)}
    nodes["n4"] = {f"gpu.{gpu}.vbios": "96.2" if gpu == 3 else "96.1" for gpu in range(8)}

    (found,) = compare(counted(nodes)).deviations
    assert ("gpu.3.vbios", "96.2", "96.1") == (found.key, found.value, found.majority)


def test_a_node_whose_devices_agree_where_those_of_others_differ_is_named_once():
    nodes = {
        f"n{n}": {f"rank.{rank}.CUDA_VISIBLE_DEVICES": str(rank) for rank in range(8)}
        | {"rank.environment": "read"}
        for n in range(4)
    }
    nodes["n4"] = {"rank.CUDA_VISIBLE_DEVICES": "0,1,2", "rank.environment": "read"}

    (found,) = compare(counted(nodes)).deviations
    assert ("rank.CUDA_VISIBLE_DEVICES", 1) == (found.key, found.nodes)


def test_a_minority_too_large_to_name_is_a_split():
    nodes = {f"n{n}": {"kernel.release": "a" if n < 700 else "b"} for n in range(1500)}

    assert Comparison((), (Split("kernel.release", 2, 1500),)) == compare(counted(nodes))


def test_what_is_returned_is_bounded():
    nodes = {f"n{n}": {f"sysctl.{key}": "0" for key in range(500)} for n in range(5)}
    nodes["n5"] = {f"sysctl.{key}": "1" for key in range(500)}
    nodes |= {f"m{n}": {f"module.{key}": str(n) for key in range(500)} for n in range(4)}
    found = compare(counted(nodes))

    assert (MOST_DEVIATIONS, MOST_SPLITS) == (len(found.deviations), len(found.splits))


def cluster(seed: int) -> Nodes:
    """Return nodes with some keys, some of them by device, some set otherwise, some missing."""
    chance = random.Random(seed)
    nodes: Nodes = defaultdict(dict)
    names = [f"n{n}" for n in range(chance.randint(1, 24))]
    values = ["a", "b", "c\n", '"', "\u2028", ""]
    for node in names:
        nodes[node] = {"rank.environment": "read"} if chance.random() < 0.9 else {}
    for aspect in ASPECTS:
        usual, odd = chance.sample(values, 2), chance.random() * 0.6
        for node in names:
            # Where variables can be read there is the row that says so.
            unread = aspect == "rank.NCCL_DEBUG" and not nodes[node].get("rank.environment")
            if unread or chance.random() < 0.1:
                continue
            devices = chance.random() < 0.2 and aspect != "kernel.release"
            for device in ("0", "1", "2") if devices else ("",):
                key = Aspect(aspect).of(device)
                nodes[node][key] = usual[chance.random() < odd]
    return {node: config for node, config in nodes.items() if config}


def test_a_thousand_random_clusters_are_compared_as_by_hand():
    named = 0
    for seed in range(1000):
        nodes = cluster(seed)
        found = compare(counted(nodes))
        minorities, splits = naive(nodes)

        assert minorities == {(each.key, each.value) for each in found.deviations}, seed
        assert splits == {each.key for each in found.splits}, seed
        for each in found.deviations:
            has = sum(config.get(each.key) == each.value for config in nodes.values())
            assert each.value == UNSET or has == each.nodes, seed
        named += len(found.deviations)
    assert named > 1000
