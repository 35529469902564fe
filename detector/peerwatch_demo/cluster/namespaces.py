"""One network namespace per node, joined by a bridge, with the link rate of each node shaped.

Every node gets ``eth0`` with an address in 10.177.N.0/24. The bridge stands in a namespace of
its own, where no firewall rule of this machine applies to bridged packets; one more veth pair
joins it to the root namespace, so that Prometheus here reaches the exporters there.

The names carry the process id of the demo that made them, so that two demos do not meet and
what a killed demo left behind is found by the next.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peerwatch_demo.stack.process import StackError

PREFIX = "peerwatch-demo"
_NAME = re.compile(rf"^{PREFIX}-(?P<pid>\d+)-(?P<role>.+)$")
_BRIDGE = "br0"

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Shape:
    """How fast a node's link sends: a token bucket filter.

    ``limit`` is the queue in bytes before packets are dropped: a healthy link has a long one, a
    broken one drops, and the node has to send again.
    """

    rate_bits: int
    burst_bytes: int
    limit_bytes: int

    def arguments(self) -> list[str]:
        """Return the qdisc as ``tc`` wants it."""
        return [
            "tbf", "rate", f"{self.rate_bits}bit",
            "burst", f"{self.burst_bytes}", "limit", f"{self.limit_bytes}",
        ]  # fmt: skip


def run_command(arguments: Sequence[str]) -> str:
    """Run a command and return what it printed.

    Raises
    ------
    StackError
        If it fails; with its own words.
    """
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"`{' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def why_unavailable(run: Run = run_command) -> str | None:
    """Return why this machine cannot give every node a namespace, or None if it can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not on PATH (package iproute2)"
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        run(["ip", "netns", "add", probe])
    except StackError as error:
        return str(error)
    try:
        # A container may allow namespaces and still lack devices or the shaper.
        run(["ip", "-n", probe, "link", "add", "a0", "type", "veth", "peer", "name", "b0"])
        run(["ip", "-n", probe, "link", "add", _BRIDGE, "type", "bridge"])
        run(["tc", "-n", probe, "qdisc", "add", "dev", "a0", "root",
             *Shape(10**6, 32_000, 32_000).arguments()])  # fmt: skip
    except StackError as error:
        return str(error)
    finally:
        run(["ip", "netns", "delete", probe])
    return None


def free_subnet(addresses: Collection[str]) -> str:
    """Return the first three numbers of a 10.177.N.0/24 in which no address is taken.

    Raises
    ------
    StackError
        If all 256 are in use.
    """
    for number in range(256):
        prefix = f"10.177.{number}"
        if not any(address.startswith(f"{prefix}.") for address in addresses):
            return prefix
    raise StackError("No free subnet is left in 10.177.0.0/16. End other demos and try again.")


def leftovers(names: Collection[str], alive: Callable[[int], bool]) -> list[str]:
    """Return which of the namespaces belong to a demo that no longer runs."""
    matches = (_NAME.match(name) for name in names)
    return [match[0] for match in matches if match and not alive(int(match["pid"]))]


def process_alive(pid: int) -> bool:
    """Say whether a process with this id exists."""
    return Path(f"/proc/{pid}").exists()


class Network:
    """The namespaces of one demo. ``close`` removes them, and those a dead demo left behind.

    Parameters
    ----------
    nodes
        Names of the nodes.
    shape
        The healthy link of every node.
    pid
        Whose network it is; part of every name.
    """

    def __init__(
        self, nodes: Sequence[str], shape: Shape, *, pid: int | None = None, run: Run = run_command
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._run = run
        self._shape = shape
        self._switch = f"{PREFIX}-{self._pid}-switch"
        self._uplink = f"pwdemo{self._pid}"
        self._nodes = tuple(nodes)
        self._subnet = ""
        self._shaped: set[str] = set()

    def open(self) -> None:
        """Make the namespaces, the bridge and the links.

        Raises
        ------
        StackError
            If a command fails; what was made is removed again.
        """
        for name in leftovers(self._namespaces(), process_alive):
            self._run(["ip", "netns", "delete", name])
        try:
            self._open()
        except StackError:
            self.close()
            raise

    def _open(self) -> None:
        links = json.loads(self._run(["ip", "-json", "address", "show"]))
        taken = [info["local"] for link in links for info in link.get("addr_info", ())]
        self._subnet = free_subnet(taken)
        ip, switch = self._run, self._switch
        ip(["ip", "netns", "add", switch])
        ip(["ip", "-n", switch, "link", "add", _BRIDGE, "type", "bridge"])
        ip(["ip", "-n", switch, "link", "set", _BRIDGE, "up"])
        self._join(self._uplink, None, "uplink")
        ip(["ip", "address", "add", f"{self._subnet}.254/24", "dev", self._uplink])
        ip(["ip", "link", "set", self._uplink, "up"])
        for number, node in enumerate(self._nodes):
            namespace = self.namespace(node)
            ip(["ip", "netns", "add", namespace])
            self._join("eth0", namespace, f"port{number}")
            ip(["ip", "-n", namespace, "address", "add", f"{self.address(node)}/24", "dev", "eth0"])
            ip(["ip", "-n", namespace, "link", "set", "lo", "up"])
            ip(["ip", "-n", namespace, "link", "set", "eth0", "up"])
            self.shape(node, self._shape)

    def _join(self, device: str, namespace: str | None, port: str) -> None:
        """Lay a veth pair from ``device`` to ``port`` of the bridge."""
        where = ["ip"] if namespace is None else ["ip", "-n", namespace]
        self._run([*where, "link", "add", device, "type", "veth",
                   "peer", "name", port, "netns", self._switch])  # fmt: skip
        self._run(["ip", "-n", self._switch, "link", "set", port, "master", _BRIDGE, "up"])

    def close(self) -> None:
        """Remove all of it; devices and links go with their namespaces."""
        mine = [name for name in self._namespaces() if name.startswith(f"{PREFIX}-{self._pid}-")]
        # A namespace's devices go later than its name; this one is in everybody's sight.
        with suppress(StackError):
            self._run(["ip", "link", "delete", self._uplink])
        for name in mine:
            self._run(["ip", "netns", "delete", name])

    def namespace(self, node: str) -> str:
        """Return the name of a node's namespace."""
        return f"{PREFIX}-{self._pid}-{node}"

    def address(self, node: str) -> str:
        """Return a node's address."""
        return f"{self._subnet}.{self._nodes.index(node) + 1}"

    def enter(self, node: str) -> list[str]:
        """Return the command that runs another command inside a node's namespace."""
        return ["ip", "netns", "exec", self.namespace(node)]

    def shape(self, node: str, shape: Shape) -> None:
        """Give a node's link another rate and queue."""
        where = ["tc", "-n", self.namespace(node), "qdisc"]
        # Not "replace": a packet that waits in the old queue and is larger than the new burst
        # would block the link for ever.
        if node in self._shaped:
            self._run([*where, "delete", "dev", "eth0", "root"])
        self._run([*where, "add", "dev", "eth0", "root", *shape.arguments()])
        self._shaped.add(node)

    def restore(self, node: str) -> None:
        """Give a node's link its healthy rate and queue again."""
        self.shape(node, self._shape)

    def cut(self, node: str) -> None:
        """Cut a node's link at the switch: nothing gets in or out, and nobody is told."""
        number = self._nodes.index(node)
        self._run(["ip", "-n", self._switch, "link", "set", f"port{number}", "down"])

    def _namespaces(self) -> list[str]:
        listed = self._run(["ip", "-json", "netns", "list"])
        return [entry["name"] for entry in json.loads(listed or "[]")]
