"""A node is a session: what runs on it is started, signalled and killed through its agent."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml

from demo.waiting import gone
from peerwatch_demo.cluster.nodes import (
    JOB_ID,
    Node,
    NodeSize,
    Place,
    exporter_config,
    make_nodes,
    node_environment,
    start_exporter,
    stop_together,
    wait_exporter,
)
from peerwatch_demo.stack.servers import Stack, StackError, free_ports

ROOT = Path(__file__).resolve().parents[3]
PLACE = Place(ROOT)
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def booted(stack: Stack, name: str = "node-0") -> Node:
    node = Node(name, 0, "127.0.0.1", free_ports(1)[0], stack.directory / name)
    node.boot(stack, PLACE)
    return node


def test_processes_of_a_node_share_its_session(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)
        pid = node.start("rank", SLEEP, os.environ)

        assert node.agent.pid == os.getsid(pid)


def test_a_signal_reaches_the_process_it_names(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)
        rank = node.start("rank", SLEEP, os.environ)
        other = node.start("other", SLEEP, os.environ)

        assert rank == node.signal("rank", signal.SIGKILL)
        assert gone(rank)
        assert not gone(other, seconds=0.1)


def test_a_process_that_is_ended_is_gone_even_if_it_was_stopped(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)
        hog = node.start("hog", SLEEP, os.environ)
        rank = node.start("rank", SLEEP, os.environ)
        node.signal("hog", signal.SIGSTOP)

        assert hog == node.end("hog")
        # Not even a zombie is left, and the name is free for the next.
        assert not Path(f"/proc/{hog}").exists()
        assert hog != node.start("hog", SLEEP, os.environ)
        assert not gone(rank, seconds=0.1)


def test_killing_a_node_leaves_nothing_of_it(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node, other = booted(stack), booted(stack, "node-1")
        pids = [node.start(name, SLEEP, os.environ) for name in ("rank", "exporter")]
        survivor = other.start("rank", SLEEP, os.environ)

        node.kill()

        assert all(gone(pid) for pid in pids)
        assert not gone(survivor, seconds=0.1)
        with pytest.raises(StackError, match=r"node-0 is dead\."):
            node.start("late", SLEEP, os.environ)


def test_stopping_the_stack_ends_even_a_stopped_rank(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)
        rank = node.start("rank", SLEEP, os.environ)
        node.signal("rank", signal.SIGSTOP)
        stack.on_stop(lambda: stop_together([node]))

    assert gone(rank)
    assert not node.agent.alive


def test_a_node_waits_for_its_processes_to_end_in_order(tmp_path: Path) -> None:
    script = f"""
        import signal, time
        from pathlib import Path
        def leave(*_):
            time.sleep(0.5)
            Path({str(tmp_path / "left")!r}).touch()
            raise SystemExit
        signal.signal(signal.SIGTERM, leave)
        print("up", flush=True)
        time.sleep(600)
    """
    with Stack(tmp_path) as stack:
        node = booted(stack)
        node.start("rank", [sys.executable, "-c", textwrap.dedent(script)], os.environ)
        while not node.rank_log.read_text():
            time.sleep(0.02)
        # One SIGTERM comes from here, one when it is the node's turn, after others.
        stack.on_stop(lambda: time.sleep(0.2))
        stack.on_stop(lambda: stop_together([node]))

    assert (tmp_path / "left").exists()


def test_what_cannot_be_started_or_signalled_is_said(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)

        with pytest.raises(StackError, match=r"node-0: '/no/such/program' does not exist"):
            node.start("rank", ["/no/such/program"], os.environ)
        with pytest.raises(StackError, match=r"node-0: unknown process .*'ghost'"):
            node.signal("ghost", signal.SIGTERM)
        with pytest.raises(StackError, match=r"node-0: unknown process .*'ghost'"):
            node.end("ghost")
        assert node.start("rank", SLEEP, os.environ) > 0


def test_prolog_and_epilog_write_the_nodes_job(tmp_path: Path) -> None:
    node = Node("node-0", 0, "127.0.0.1", 1, tmp_path / "node-0")
    mapping = tmp_path / "node-0" / "jobs" / "node"

    node.assign(JOB_ID)
    written = mapping.read_text()
    node.assign(None)

    assert f"{JOB_ID}\n" == written
    assert not mapping.exists()


def test_without_namespaces_the_network_is_nobodys(tmp_path: Path) -> None:
    (node,) = make_nodes(["node-0"], tmp_path, [9411], None)

    plain = yaml.safe_load(exporter_config(node, NodeSize(), namespaces=False))
    own = yaml.safe_load(exporter_config(node, NodeSize(), namespaces=True))

    difference = set(plain["collectors"]["disabled"]) - set(own["collectors"]["disabled"])
    assert {"network", "tcp"} == difference
    assert {"address": "127.0.0.1", "port": 9411} == plain["listen"]


def test_a_nodes_exporter_counts_what_the_node_runs_and_nothing_else(tmp_path: Path) -> None:
    node, other = make_nodes(["node-0", "node-1"], tmp_path, [1, 2], None)

    scope = yaml.safe_load(exporter_config(node, NodeSize(), namespaces=False))["scope"]

    mine, others = node_environment(node, PLACE), node_environment(other, PLACE)
    another_demos = {**mine, "PEERWATCH_DEMO": "1"}
    assert scope["environment"].items() <= mine.items()
    assert not scope["environment"].items() <= others.items()
    assert not scope["environment"].items() <= another_demos.items()
    assert not scope["environment"].items() <= PLACE.environment().items()


def test_the_real_exporter_starts_with_the_demos_configuration(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)
        node.assign(JOB_ID)
        start_exporter(node, PLACE, NodeSize(), namespaces=False, logs=True)

        wait_exporter(node)

        assert f"127.0.0.1:{node.port}" == node.target.address


def test_an_exporter_that_refuses_its_configuration_is_an_error(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        node = booted(stack)
        start_exporter(node, PLACE, NodeSize(cpus=-1), namespaces=False, logs=True)
        log, deadline = node.directory / "exporter.log", time.monotonic() + 300
        while "cpus" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)

        with pytest.raises(StackError, match=r"(?s)not ready.*cpus"):
            wait_exporter(node, seconds=0.5)
