"""The faults that can be injected, each really done to a node, and what it takes to do them."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peerwatch_demo.cluster.namespaces import Network, Shape
from peerwatch_demo.cluster.nodes import Node, NodeSize, Place, node_environment
from peerwatch_demo.stack.process import StackError

# 20 Mbit/s through a queue of 12 full frames: a link that renegotiated down and drops.
_BROKEN_LINK = Shape(rate_bits=20_000_000, burst_bytes=4_000, limit_bytes=18_000)
_SPINNERS = ("spinner-0", "spinner-1")
# Chosen: a hog takes half of what the node pretends to have, and never more than a quarter of what
# the machine has left, which others use too.
_HOG_SHARE_OF_NODE = 0.5
_HOG_SHARE_OF_MACHINE = 0.25


class FaultError(ValueError):
    """The fault asked for does not exist or cannot be done here."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a fault may act on."""

    place: Place
    size: NodeSize
    network: Network | None


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: its name, what is done in one sentence, the doing and the undoing.

    ``undo`` is None for what cannot be undone.
    """

    name: str
    summary: str
    inject: Callable[[Site, Node], str]
    undo: Callable[[Site, Node], None] | None
    needs_namespaces: bool = False


def slow_nic(site: Site, node: Node) -> str:
    """Let the node's link fall to a fraction of its rate, with a queue that drops packets."""
    assert site.network is not None, "choose_fault asks for namespaces"
    site.network.shape(node.name, _BROKEN_LINK)
    return f"its link now sends {_BROKEN_LINK.rate_bits / 1e6:g} Mbit/s and drops packets"


def restore_nic(site: Site, node: Node) -> None:
    """Give the node's link its healthy rate and queue again."""
    assert site.network is not None, "choose_fault asks for namespaces"
    site.network.restore(node.name)


def cpu_contention(site: Site, node: Node) -> str:
    """Start programs on the node that burn all the CPU they get."""
    environment = node_environment(node, site.place)
    stress = [site.place.python, "-m", "peerwatch_demo.cluster.stress", "cpu"]
    pids = [node.start(name, stress, environment) for name in _SPINNERS]
    return f"{len(pids)} foreign processes burn CPU there: {', '.join(map(str, pids))}"


def end_contention(_site: Site, node: Node) -> None:
    """End the programs that burn CPU."""
    for name in _SPINNERS:
        node.end(name)


def stopped_process(_site: Site, node: Node) -> str:
    """Stop the node's rank: it is there, holds its connections, and does nothing."""
    pid = node.signal("rank", signal.SIGSTOP)
    return f"rank {node.rank}, process {pid}, got SIGSTOP"


def continue_process(_site: Site, node: Node) -> None:
    """Let the node's rank go on."""
    node.signal("rank", signal.SIGCONT)


def killed_node(site: Site, node: Node) -> str:
    """Take the node away as a power cut does: the link first, so that no peer is told."""
    if site.network is not None:
        site.network.cut(node.name)
    node.kill()
    cut = "its link is cut and " if site.network is not None else ""
    return f"{cut}everything on it was killed, exporter included"


def memory_hog(site: Site, node: Node) -> str:
    """Start a program on the node that fills its memory."""
    size = hog_bytes(site.size.memory_bytes, available_memory())
    environment = node_environment(node, site.place)
    stress = [site.place.python, "-m", "peerwatch_demo.cluster.stress", "memory", str(size)]
    pid = node.start("hog", stress, environment)
    return f"process {pid} takes {size / 2**20:.0f} MiB of the node's memory"


def end_hog(_site: Site, node: Node) -> None:
    """End the program that fills the memory."""
    node.end("hog")


FAULTS = (
    Fault(
        "slow_nic",
        "the node's network link degrades",
        slow_nic,
        restore_nic,
        needs_namespaces=True,
    ),
    Fault(
        "cpu_contention", "foreign processes burn the node's CPU", cpu_contention, end_contention
    ),
    Fault(
        "stopped_process", "the node's rank is stopped (SIGSTOP)", stopped_process, continue_process
    ),
    Fault("killed_node", "the node dies with everything on it", killed_node, None),
    Fault("memory_hog", "a foreign process fills the node's memory", memory_hog, end_hog),
)


def choose_fault(name: str | None, *, no_namespaces: str | None) -> Fault:
    """Return the fault of that name, or the default of this machine.

    Parameters
    ----------
    name
        As in ``FAULT=``; None or empty for the default: the first that works here.
    no_namespaces
        Why there are no namespaces; None if there are.

    Raises
    ------
    FaultError
        If there is no such fault, or it needs namespaces.
    """
    usable = [fault for fault in FAULTS if no_namespaces is None or not fault.needs_namespaces]
    if not name:
        return usable[0]
    for fault in usable:
        if fault.name == name:
            return fault
    names = ", ".join(fault.name for fault in usable)
    if name in {fault.name for fault in FAULTS}:
        raise FaultError(
            f"FAULT={name!r} needs a network namespace for every node, which this machine "
            f"does not give ({no_namespaces}). Here these work: {names}."
        )
    raise FaultError(f"FAULT={name!r} is not a fault of the demo. Here these work: {names}.")


def choose_node(nodes: list[str], seed: str | None) -> str:
    """Return the node that will be faulty; the same one for the same ``seed``."""
    rng = random.Random(seed) if seed else random.SystemRandom()  # noqa: S311 - not a secret
    return rng.choice(nodes)


def hog_bytes(node_bytes: int, available_bytes: int) -> int:
    """Return how much the hog takes: half the node's memory.

    Raises
    ------
    StackError
        If the machine has too little left for that to be safe.
    """
    wanted = int(node_bytes * _HOG_SHARE_OF_NODE)
    limit = int(available_bytes * _HOG_SHARE_OF_MACHINE)
    if wanted > limit:
        raise StackError(
            f"memory_hog needs {wanted / 2**20:.0f} MiB, more than a quarter of the "
            f"{available_bytes / 2**20:.0f} MiB this machine has left. Free some memory or "
            "choose another FAULT."
        )
    return wanted


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return how many bytes the machine can still give out."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise StackError(f"{meminfo} has no line MemAvailable.")
