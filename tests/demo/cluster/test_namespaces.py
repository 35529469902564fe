"""Names, subnets and commands; and, where this machine allows it, the real thing."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from peerwatch_demo.cluster.namespaces import (
    Network,
    Shape,
    free_subnet,
    leftovers,
    run_command,
    why_unavailable,
)
from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import Stack

HEALTHY = Shape(rate_bits=400_000_000, burst_bytes=256_000, limit_bytes=8_000_000)
SLOW = Shape(rate_bits=1_000_000, burst_bytes=4_000, limit_bytes=18_000)


class FakeHost:
    """Knows which namespaces exist and fails where it is told to."""

    def __init__(self, fails_at: str = "\0") -> None:
        self.commands: list[str] = []
        self.namespaces: list[str] = []
        self._fails_at = fails_at

    def __call__(self, arguments: Sequence[str]) -> str:
        command = " ".join(arguments)
        self.commands.append(command)
        if self._fails_at in command:
            raise StackError(f"`{command}` failed")
        if command.startswith("ip netns add"):
            self.namespaces.append(arguments[-1])
        if command.startswith("ip netns delete"):
            self.namespaces.remove(arguments[-1])
        if command == "ip -json netns list":
            names = ", ".join(f'{{"name": "{name}"}}' for name in self.namespaces)
            return f"[{names}]" if names else ""
        if command == "ip -json address show":
            return '[{"addr_info": [{"local": "10.177.0.254"}]}, {}]'
        return ""


def test_a_subnet_in_use_is_not_taken_again() -> None:
    assert "10.177.0" == free_subnet(["127.0.0.1", "10.17.0.1"])
    assert "10.177.2" == free_subnet(["10.177.0.254", "10.177.1.254", "10.177.20.254"])
    with pytest.raises(StackError, match="No free subnet"):
        free_subnet([f"10.177.{number}.254" for number in range(256)])


def test_only_namespaces_of_dead_demos_are_leftovers() -> None:
    names = ["peerwatch-demo-10-switch", "peerwatch-demo-11-node-3", "blue", "peerwatch-demo-x"]

    assert ["peerwatch-demo-10-switch"] == leftovers(names, alive=lambda pid: pid == 11)


def test_a_network_has_a_namespace_for_each_node_and_one_for_the_bridge() -> None:
    host = FakeHost()
    network = Network(["node-0", "node-1"], HEALTHY, pid=7, run=host)
    host.namespaces += ["blue", "peerwatch-demo-99999999-switch"]

    network.open()
    opened = list(host.namespaces)
    network.close()

    mine = [f"peerwatch-demo-7-{name}" for name in ("switch", "node-0", "node-1")]
    assert ["blue", *mine] == opened
    assert ["blue"] == host.namespaces
    assert ("10.177.1.1", "10.177.1.2") == (network.address("node-0"), network.address("node-1"))


def test_what_was_made_before_an_error_is_removed() -> None:
    host = FakeHost(fails_at="tc -n peerwatch-demo-7-node-1")
    network = Network(["node-0", "node-1"], HEALTHY, pid=7, run=host)

    with pytest.raises(StackError, match="tc -n peerwatch-demo-7-node-1"):
        network.open()

    assert [] == host.namespaces


def test_a_new_shape_drops_the_old_queue_first() -> None:
    host = FakeHost()
    network = Network(["node-0"], HEALTHY, pid=7, run=host)
    network.open()
    host.commands.clear()

    network.shape("node-0", SLOW)

    where = "tc -n peerwatch-demo-7-node-0 qdisc"
    assert [
        f"{where} delete dev eth0 root",
        f"{where} add dev eth0 root tbf rate 1000000bit burst 4000 limit 18000",
    ] == host.commands


def test_without_root_there_are_no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert "not root" == why_unavailable()


def test_without_iproute2_there_are_no_namespaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "ip and tc not on PATH (package iproute2)" == why_unavailable()


def test_a_command_that_fails_is_quoted_with_its_words() -> None:
    with pytest.raises(StackError, match=r"`sh -c echo no room >&2; exit 3` failed: no room"):
        run_command(["sh", "-c", "echo no room >&2; exit 3"])


SERVER = """
import socket
server = socket.create_server(("", 5001))
print("up", flush=True)
while True:
    connection, _ = server.accept()
    while connection.recv(65536):
        pass
    connection.sendall(b"done")
    connection.close()
"""
# Asks the node itself to send: its own link is the one that is shaped.
CLIENT = """
import socket, sys, time
began = time.monotonic()
connection = socket.create_connection((sys.argv[1], 5001), timeout=60)
connection.sendall(bytes(100_000))
connection.shutdown(socket.SHUT_WR)
assert connection.recv(4) == b"done"
print(time.monotonic() - began, flush=True)
"""


@pytest.mark.root
def test_real_links_connect_slow_down_and_are_cut(tmp_path: Path) -> None:
    if reason := why_unavailable():
        pytest.skip(f"no network namespaces here: {reason}")
    network = Network(["node-0", "node-1"], HEALTHY)
    with Stack(tmp_path) as stack:
        stack.on_stop(network.close)
        network.open()
        python = sys.executable
        server = stack.start("server", [*network.enter("node-1"), python, "-c", SERVER])
        client = [*network.enter("node-0"), python, "-c", CLIENT, network.address("node-1")]
        while "up" not in server.tail():
            assert server.alive, server.tail()

        # A busy machine may need several attempts.
        fast = min(float(run_command(client)) for _ in range(10))
        network.shape("node-0", SLOW)
        slow = float(run_command(client))
        # From the root namespace, as Prometheus does.
        socket.create_connection((network.address("node-1"), 5001), timeout=60).close()
        network.cut("node-1")
        with pytest.raises(OSError, match=r"timed out|unreachable|No route"):
            socket.create_connection((network.address("node-1"), 5001), timeout=0.5)

    assert 2 * fast < slow
    assert 0.7 < slow  # 800,000 bits at 1 Mbit/s, less the first burst
    assert f"-{os.getpid()}-" not in run_command(["ip", "netns", "list"])
