"""Nodes in network namespaces ping each other over links that lose packets: who is named?"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from peerwatch_demo.cluster.namespaces import Network, Shape, run_command, why_unavailable
from peerwatch_demo.stack.process import StackError
from peerwatch_detector.diagnosis.root.algorithm.episode import episode
from peerwatch_detector.diagnosis.root.algorithm.net_diag import net_diag
from peerwatch_detector.diagnosis.root.algorithm.ping_table import PairCount, PingTable, ping_table
from peerwatch_detector.diagnosis.root.evidence.job_places import JobPlaces
from peerwatch_detector.diagnosis.root.taxonomy.rules import rule_book

TESTS = Path(__file__).parents[1]
NODES = ("node-0", "node-1", "node-2", "node-3", "node-4")
HEALTHY = Shape(rate_bits=400_000_000, burst_bytes=256_000, limit_bytes=8_000_000)
# A packet larger than the bucket never leaves it.
NO_LARGE_ONES = Shape(rate_bits=400_000_000, burst_bytes=1000, limit_bytes=8_000_000)
# Enough that losses, which are counted later than answers, are among them.
ENOUGH = 80
TIMEOUT_SECONDS = 2
AFTER = 10
PATIENCE_SECONDS = 120
TRIES = 5
Found = list[tuple[str, str, str, str]]


class Node:
    """One that pings, in a namespace."""

    def __init__(self, command: Sequence[str], settings: dict[str, object]) -> None:
        paths = [str(TESTS), *sys.path]
        self._process = subprocess.Popen(
            [*command, sys.executable, str(TESTS / "ping_node.py"), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def counts(self) -> dict[tuple[str, str, str], list[int]]:
        """Return sent and lost by peer, protocol and size."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert not answer["problem"], answer["problem"]
        return {(each[0], each[1], each[2]): each[3:] for each in answer["counts"]}

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Cluster:
    """Nodes that ping each other.

    Parameters
    ----------
    network
        Their links.
    directory
        For the secret.
    """

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = network
        self.names = {network.address(node): node for node in NODES}
        secret = directory / "secret"
        secret.write_text("a secret of all nodes")
        self._nodes = {
            node: Node(
                network.enter(node),
                {
                    "enabled": True,
                    "secret_file": str(secret),
                    "peers": [*self.names],
                    "pings_per_second": 200,
                    "timeout_seconds": TIMEOUT_SECONDS,
                    "tcp": False,
                },
            )
            for node in NODES
        }

    def since(self, before: dict[str, dict[tuple[str, str, str], list[int]]]) -> PingTable:
        """Return what was counted after an earlier reading."""
        counts = []
        for node, now in self.read().items():
            for (peer, protocol, size), numbers in now.items():
                known = before.get(node, {}).get((peer, protocol, size), [0] * 4)
                new = [each - old for each, old in zip(numbers, known, strict=True)]
                counts.append(PairCount(node, self.names[peer], protocol, size, *new))
        return ping_table(counts)

    def read(self) -> dict[str, dict[tuple[str, str, str], list[int]]]:
        """Return what each node has counted."""
        return {name: node.counts() for name, node in self._nodes.items()}

    def found(self) -> Found:
        """Return who is named, once each pair was pinged often enough from now on."""
        nothing = episode((), rule_book(), float("inf"), "")
        named = net_diag(nothing, JobPlaces(NODES), self.pinged(ENOUGH))
        return [(f.what, f.name, f.symptom, f.direction) for f in named if f.symptom != "slow"]

    def assert_named(self, *expected: tuple[str, str, str, str]) -> None:
        """Assert who is named; a busy machine may hold up others' pings too, but not each time."""
        for _ in range(TRIES):
            if (found := self.found()) == [*expected]:
                return
            self.settle()
        assert [*expected] == found

    def settle(self) -> None:
        """Wait until what was lost up to now is counted: once it is due, and an answer came."""
        time.sleep(TIMEOUT_SECONDS)
        self.pinged(AFTER)

    def pinged(self, least: int) -> PingTable:
        """Return what is counted from now on, once each pair sent so many pings of each size."""
        before = self.read()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            table = self.since(before)
            every = table.cells.values()
            pairs = len(NODES) * (len(NODES) - 1)
            if all(len(cells) == pairs for cells in every) and least <= min(
                cell.sent for cells in every for cell in cells
            ):
                return table
            assert time.monotonic() < deadline, table
            time.sleep(0.2)

    def close(self) -> None:
        """End all of them."""
        for node in self._nodes.values():
            node.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if reason := why_unavailable():
        pytest.skip(f"no network namespaces here: {reason}")
    network = Network(NODES, HEALTHY)
    network.open()
    try:
        opened = Cluster(network, tmp_path)
        try:
            yield opened
        finally:
            opened.close()
    finally:
        network.close()


def lose(network: Network, node: str, share: float, to: str | None = None) -> Callable[[], None]:
    """Lose a share of what a node sends, to one other node alone; return what ends that.

    As a program of the classic packet filter: a random number below the share drops the packet.
    """
    where = ["tc", "-n", network.namespace(node)]
    draw = [f"32 0 0 {0xFFFFF038}", f"53 1 0 {int(share * 2**32)}", "6 0 0 2"]
    if to is not None:
        (address,) = struct.unpack("!I", socket.inet_aton(network.address(to)))
        draw = ["32 0 0 30", f"21 0 3 {address}", *draw]
    program = [*draw, f"6 0 0 {0xFFFFFFFF}"]
    run_command([*where, "qdisc", "add", "dev", "eth0", "clsact"])
    code = f"{len(program)},{','.join(program)}"
    run_command([*where, "filter", "add", "dev", "eth0", "egress", "bpf", "da", "bytecode", code])

    def end() -> None:
        run_command([*where, "qdisc", "delete", "dev", "eth0", "clsact"])

    return end


@pytest.mark.slow
@pytest.mark.root
def test_the_node_or_path_that_loses_packets_is_named(cluster: Cluster) -> None:
    network = cluster.network
    cluster.assert_named()

    network.shape("node-2", NO_LARGE_ONES)
    cluster.assert_named(("node", "node-2", "large", "send"))
    network.restore("node-2")
    cluster.settle()

    try:
        end = lose(network, "node-1", 0.4)
    except StackError as error:
        pytest.skip(f"the kernel drops no packets by chance: {error}")
    cluster.assert_named(("node", "node-1", "", "send"))
    end()
    cluster.settle()

    end = lose(network, "node-0", 0.5, to="node-3")
    cluster.assert_named(("path", "node-0 to node-3", "", ""))
    end()
    cluster.settle()

    network.cut("node-4")
    cluster.assert_named(("node", "node-4", "", ""))
