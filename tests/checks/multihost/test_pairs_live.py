"""Pairs of real nodes: network namespaces whose links are shaped, torch over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from peerwatch_demo.cluster.namespaces import Network, Shape, why_unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Far below what this machine's processors copy, also while others use them: only the links count.
HEALTHY = Shape(rate_bits=80_000_000, burst_bytes=65_536, limit_bytes=4_000_000)
SLOW = Shape(rate_bits=20_000_000, burst_bytes=65_536, limit_bytes=4_000_000)
NODES = ("n0", "n1", "n2")
NODE = """
import json, sys
from pathlib import Path
from peerwatch_checks.check import Context
from peerwatch_checks.checks.pair.pair_bandwidth import PairBandwidthOptions, pair_bandwidth
options = PairBandwidthOptions(cpu_megabytes=1, repeats=5, join_seconds=90, pair_seconds=120)
for each in pair_bandwidth(Context(options, sys.argv[1], Path("."), 600.0)):
    print(json.dumps([each.device, each.status, each.message]), flush=True)
"""


@pytest.fixture
def network() -> Iterator[Network]:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"no network namespaces: {reason}")
    network = Network(NODES, HEALTHY)
    network.open()
    yield network
    network.close()


def start(network: Network, node: str, *, count: int, folder: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RANK": str(NODES.index(node)),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": network.address(NODES[0]),
        "MASTER_PORT": "29533",
    }
    return subprocess.Popen(
        ["ip", "netns", "exec", network.namespace(node), sys.executable, "-c", NODE, node],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )


# It mostly waits, like the plays.
@pytest.mark.xdist_group("plays-1")
def test_a_slow_link_and_a_node_that_is_not_there_are_named(
    network: Network, tmp_path: Path
) -> None:
    network.shape("n2", SLOW)
    # Of four nodes the last one is dead. What a pair costs is loading torch, on both of its nodes.
    nodes = {node: start(network, node, count=4, folder=tmp_path) for node in NODES}
    said: dict[str, list[list[str]]] = {}
    try:
        for node, process in nodes.items():
            text, _ = process.communicate(timeout=600.0)
            said[node] = [json.loads(line) for line in text.splitlines()]
    finally:
        for process in nodes.values():
            process.kill()
            process.wait()

    assert [("", "pass"), ("node 3", "fail"), ("n2", "fail")] == [
        (device, status) for device, status, _ in said["n0"]
    ]
    assert [("", "pass")] == [(device, status) for device, status, _ in said["n1"]]
    ((device, status, message),) = said["n2"]
    assert (device, status) == ("", "fail")
    assert "at best with any other node" in message
