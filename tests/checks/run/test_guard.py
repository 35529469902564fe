"""What a check started ends also when the program is killed, which lets it run no code."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import psutil

from checks_program import Program

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within two minutes")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for yet has."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def started(program: Program, folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a check with three children that ignore SIGTERM; return the program and all below."""
    file, work = folder / "pids", folder / "work"
    work.mkdir()
    program.settings["checks"] = {"has_children": {"file": str(file)}}
    program.settings["paths"]["work"] = str(work)
    process = program.start("has_children", "--json")
    wait_for(lambda: file.exists() and len(file.read_text().split()) == 3)
    below = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    return process, [*below, *map(int, file.read_text().split())]


def test_nothing_outlives_a_program_that_is_killed(tmp_path: Path) -> None:
    process, pids = started(Program(tmp_path), tmp_path)

    process.kill()
    process.communicate(timeout=600)

    wait_for(lambda: all(map(is_gone, pids)))
    wait_for(lambda: not list((tmp_path / "work").iterdir()))
    # The guard, the check, two children that it still has, and one that lost its parent.
    assert len(set(pids)) == 5


def test_nothing_outlives_a_guard_that_is_killed(tmp_path: Path) -> None:
    program = Program(tmp_path)
    process, pids = started(program, tmp_path)
    (guard,) = psutil.Process(process.pid).children()

    guard.kill()
    process.communicate(timeout=600)

    wait_for(lambda: all(map(is_gone, pids)))
    (found,) = program.spooled("has_children")
    assert ("error", "Its process ended by signal 9.") == (found["status"], found["message"])
    assert [] == list((tmp_path / "work").iterdir())


def test_what_is_asked_to_end_has_time_after_the_check_itself_has_ended(tmp_path: Path) -> None:
    program = Program(tmp_path)
    file = tmp_path / "said"
    program.settings["checks"] = {"has_a_slow_child": {"file": str(file)}}
    process = program.start("has_a_slow_child", "--json")
    wait_for(file.exists)

    process.terminate()
    process.communicate(timeout=600)

    assert ["up", "cleaned up"] == file.read_text().splitlines()
    with contextlib.suppress(psutil.NoSuchProcess):
        assert not psutil.Process(process.pid).is_running()
