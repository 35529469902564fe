"""Which faults work where, and who is hit; and what a fault does to its node."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from peerwatch_demo.cluster import stress
from peerwatch_demo.cluster.faults import (
    FAULTS,
    FaultError,
    Site,
    available_memory,
    choose_fault,
    choose_node,
    hog_bytes,
)
from peerwatch_demo.cluster.namespaces import Network, Shape
from peerwatch_demo.cluster.nodes import Node, NodeSize, Place
from peerwatch_demo.stack.process import StackError

NODES = [f"node-{number}" for number in range(8)]
MIB = 2**20


class FakeNode(Node):
    """Writes down what is done to it."""

    def __init__(self, directory: Path) -> None:
        super().__init__("node-5", 5, "127.0.0.1", 9400, directory)
        self.done: list[tuple[str, ...]] = []

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        self.done.append(("start", environment["PEERWATCH_NODE"], *arguments[3:]))
        return 4711

    def signal(self, name: str, number: signal.Signals) -> int:
        self.done.append(("signal", name, number.name))
        return 4711

    def end(self, name: str) -> int:
        self.done.append(("end", name))
        return 4711

    def kill(self) -> None:
        self.done.append(("kill",))


def test_the_default_is_the_network_where_nodes_have_one() -> None:
    assert "slow_nic" == choose_fault("", no_namespaces=None).name
    assert "cpu_contention" == choose_fault(None, no_namespaces="not root").name


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_can_be_asked_for_by_name(fault: object) -> None:
    assert fault is choose_fault(fault.name, no_namespaces=None)  # type: ignore[attr-defined]


def test_an_unknown_fault_lists_those_that_work_here() -> None:
    with pytest.raises(FaultError, match=r"FAULT='slow' .* slow_nic, cpu_contention, .*hog\."):
        choose_fault("slow", no_namespaces=None)


def test_a_fault_that_needs_namespaces_says_why_there_are_none() -> None:
    with pytest.raises(FaultError, match=r"FAULT='slow_nic' .*\(not root\).*work: cpu_contention"):
        choose_fault("slow_nic", no_namespaces="not root")


def test_the_same_seed_hits_the_same_node_and_others_differ() -> None:
    chosen = {seed: choose_node(NODES, seed) for seed in map(str, range(20))}

    assert all(node == choose_node(NODES, seed) for seed, node in chosen.items())
    assert len(set(chosen.values())) > 3
    assert choose_node(NODES, "") in NODES


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("cpu_contention", [("start", "node-5", "cpu")] * 2),
        ("stopped_process", [("signal", "rank", "SIGSTOP")]),
        ("killed_node", [("kill",)]),
        ("memory_hog", [("start", "node-5", "memory", str(10 * MIB))]),
    ],
)
def test_a_fault_acts_on_its_node_only(
    name: str, done: list[tuple[str, ...]], tmp_path: Path
) -> None:
    node = FakeNode(tmp_path / "node")
    site = Site(Place(tmp_path), NodeSize(memory_bytes=20 * MIB), None)

    choose_fault(name, no_namespaces="not root").inject(site, node)

    assert done == node.done


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("cpu_contention", [("end", "spinner-0"), ("end", "spinner-1")]),
        ("stopped_process", [("signal", "rank", "SIGCONT")]),
        ("memory_hog", [("end", "hog")]),
    ],
)
def test_a_fault_is_undone_on_its_node(
    name: str, done: list[tuple[str, ...]], tmp_path: Path
) -> None:
    node = FakeNode(tmp_path / "node")
    site = Site(Place(tmp_path), NodeSize(memory_bytes=20 * MIB), None)
    fault = choose_fault(name, no_namespaces="not root")
    fault.inject(site, node)
    node.done.clear()

    assert fault.undo is not None
    fault.undo(site, node)

    assert done == node.done


def test_what_a_fault_starts_it_also_ends(tmp_path: Path) -> None:
    class NamingNode(FakeNode):
        def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
            self.done.append(("start", name))
            return 4711

    node = NamingNode(tmp_path / "node")
    site = Site(Place(tmp_path), NodeSize(memory_bytes=20 * MIB), None)
    for fault in FAULTS:
        if fault.name in {"cpu_contention", "memory_hog"}:
            fault.inject(site, node)
            assert fault.undo is not None
            fault.undo(site, node)

    names = {kind: [call[1] for call in node.done if call[0] == kind] for kind in ("start", "end")}
    assert names["start"] == names["end"] == ["spinner-0", "spinner-1", "hog"]


def test_the_link_is_degraded_and_healthy_again(tmp_path: Path) -> None:
    commands: list[str] = []

    def run(arguments: Sequence[str]) -> str:
        commands.append(" ".join(arguments))
        return ""

    healthy = Shape(rate_bits=400_000_000, burst_bytes=256_000, limit_bytes=8_000_000)
    network = Network(["node-5"], healthy, pid=1, run=run)
    site = Site(Place(tmp_path), NodeSize(), network)
    fault = choose_fault("slow_nic", no_namespaces=None)
    node = FakeNode(tmp_path / "node")

    fault.inject(site, node)
    assert fault.undo is not None
    fault.undo(site, node)

    rates = [command.partition(" rate ")[2].split()[0] for command in commands if "rate" in command]
    assert ["20000000bit", "400000000bit"] == rates


def test_only_a_dead_node_stays_dead() -> None:
    assert ["killed_node"] == [fault.name for fault in FAULTS if fault.undo is None]


def test_the_hog_takes_half_the_node_and_never_endangers_the_machine() -> None:
    assert 1024 * MIB == hog_bytes(2048 * MIB, 8192 * MIB)
    with pytest.raises(StackError, match=r"needs 1024 MiB, more than a quarter of the 2000 MiB"):
        hog_bytes(2048 * MIB, 2000 * MIB)


def test_available_memory_is_read_in_bytes(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemAvailable:   40 kB\n")

    assert 40 * 1024 == available_memory(meminfo)
    meminfo.write_text("MemTotal:  100 kB\n")
    with pytest.raises(StackError, match="no line MemAvailable"):
        available_memory(meminfo)


def test_the_hog_really_touches_what_it_takes() -> None:
    held = stress.hold(40 * MIB, seconds=0)

    assert 40 * MIB <= sum(map(len, held)) < 60 * MIB
    assert all(piece[0] == piece[-1] == 1 for piece in held)
