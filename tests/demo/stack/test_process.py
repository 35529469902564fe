"""Children end when they should, whole and only they, also when the demo is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from demo.waiting import gone
from peerwatch_demo.stack.process import PORTS, Process, StackError, free_ports, wait_http

ROOT = Path(__file__).resolve().parents[3]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def read_line(path: Path, seconds: float = 300.0) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text().strip()
        time.sleep(0.02)
    raise AssertionError(f"nothing was written to {path}")


def test_a_child_leads_a_session_of_its_own(tmp_path: Path) -> None:
    process = Process.start("sleeper", SLEEP, tmp_path / "log")
    try:
        assert process.pid == os.getsid(process.pid)
        assert process.alive
    finally:
        process.stop()

    assert not process.alive


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(600)"
    )
    process = Process.start("stubborn", [sys.executable, "-c", script], tmp_path / "log")
    read_line(tmp_path / "log")

    process.stop(seconds=0.2)

    assert -signal.SIGKILL == process.popen.returncode


def test_a_stopped_child_still_ends_by_sigterm(tmp_path: Path) -> None:
    process = Process.start("stopped", SLEEP, tmp_path / "log")
    process.signal(signal.SIGSTOP)

    process.stop(seconds=5)

    assert -signal.SIGTERM == process.popen.returncode


def test_kill_takes_the_childs_own_children_too(tmp_path: Path) -> None:
    script = f"""
        import subprocess, sys, time
        child = subprocess.Popen({SLEEP!r})
        print(child.pid, flush=True)
        time.sleep(600)
    """
    process = Process.start(
        "parent", [sys.executable, "-c", textwrap.dedent(script)], tmp_path / "log"
    )
    grandchild = int(read_line(tmp_path / "log"))

    process.kill()

    assert gone(grandchild)


def test_a_reaped_child_is_never_signalled(tmp_path: Path) -> None:
    process = Process.start("short", [sys.executable, "-c", ""], tmp_path / "log")
    process.popen.wait()

    # Process 1's group would answer with an error or worse; nothing must be sent at all.
    process.signal(signal.SIGTERM)
    process.stop()

    assert process.popen.returncode == 0


def test_children_die_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = f"""
        import time
        from pathlib import Path
        from peerwatch_demo.stack.servers import Stack
        stack = Stack(Path({str(tmp_path)!r}))
        child = stack.start("sleeper", {SLEEP!r})
        print(child.pid, flush=True)
        time.sleep(600)
    """
    with (tmp_path / "out").open("w") as out:
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=out,
            env={**os.environ, "PYTHONPATH": str(ROOT / "detector")},
        )
    child = int(read_line(tmp_path / "out"))

    parent.kill()
    parent.wait()

    assert gone(child)


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StackError, match=r"ghost cannot be started: '/no/such/program' does not exist"
    ):
        Process.start("ghost", ["/no/such/program"], tmp_path / "log")


def test_free_ports_are_different_and_can_be_bound() -> None:
    ports = free_ports(20)

    assert 20 == len(set(ports))
    assert set(PORTS) >= set(ports)


def test_a_port_is_not_given_twice() -> None:
    first = set(free_ports(10))

    assert not any(first & set(free_ports(1)) for _ in range(10))


def test_more_ports_than_there_are_is_an_error() -> None:
    with pytest.raises(StackError, match=r"of 20000 TCP ports"):
        free_ports(20000)


def test_waiting_for_a_dead_server_shows_its_last_words(tmp_path: Path) -> None:
    script = "import sys; sys.exit('no such option --frob')"
    process = Process.start("server", [sys.executable, "-c", script], tmp_path / "log")

    with pytest.raises(StackError, match=r"server ended with status 1:\nno such option --frob"):
        wait_http(f"http://127.0.0.1:{free_ports(1)[0]}/", process)


def test_waiting_for_a_silent_server_ends(tmp_path: Path) -> None:
    process = Process.start("silent", SLEEP, tmp_path / "log")
    try:
        with pytest.raises(StackError, match=r"silent was not ready at http\S+ within 0.3 s"):
            wait_http(f"http://127.0.0.1:{free_ports(1)[0]}/", process, seconds=0.3)
    finally:
        process.stop()
