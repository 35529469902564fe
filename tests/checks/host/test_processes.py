"""Processes that nobody ends: on GPUs, zombies, stuck in the kernel."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from fake_collectors import wait_until
from peerwatch_checks.check import Context, Outcome
from peerwatch_checks.checks.host.processes import ProcessesOptions, processes
from peerwatch_checks.facts.gpu_use import GpuUse

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNED = re.compile(r"/job_\d+(/|$)|kubepods|/docker[-/]|libpod-|cri-containerd-|crio-")
# A process that called vfork waits in the kernel until its child ends.
STUCK = "import ctypes, time; ctypes.CDLL(None).vfork(); time.sleep(600)"
# With an output of its own: nobody waits for the end of ours then.
ORPHAN = (
    "import subprocess, sys\n"
    "p = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL); print(p.pid)"
)
ZOMBIES = (
    "import os, time\nfor _ in range(4):\n    os.fork() or os._exit(0)\n"
    "print(os.getpid(), flush=True)\ntime.sleep(600)"
)


def run(folder: Path, **given: Any) -> dict[str, Outcome]:
    options = given.pop("options", {})
    gpus = given.pop("gpus", None)
    context = Context(ProcessesOptions(**options), "n1", folder, 60.0, gpus=gpus)
    given = {"use": lambda _gpus: (), "sleep": lambda _seconds: None} | given
    return {outcome.device: outcome for outcome in processes(context, **given)}


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Process ids that are ended after the test, with their children."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in (*psutil.Process(pid).children(), psutil.Process(pid)):
                each.kill()


def test_a_node_without_leftovers_passes(tmp_path: Path) -> None:
    # What else runs on the machine of the test may be stuck or a zombie.
    found = run(tmp_path, options={"zombies": 100_000})

    assert ["pass", "pass"] == [found["gpus"].status, found["zombies"].status]
    assert set(found) == {"gpus", "zombies", "stuck"}


def test_after_a_job_all_that_holds_its_gpus_is_left_over(tmp_path: Path) -> None:
    use = (GpuUse(3, (os.getpid(), 2**22 - 1), 10**9),)

    found = run(tmp_path, gpus=(3,), use=lambda _gpus: use)["gpus"]

    assert ("fail", 1.0) == (found.status, found.value)
    assert f"({os.getpid()}, " in found.message
    assert "on GPU 3" in found.message
    user = psutil.Process().username()
    ignored = run(tmp_path, gpus=(3,), use=lambda _: use, options={"ignore_users": [user]})
    assert "pass" == ignored["gpus"].status


def test_by_hand_only_what_lost_its_parent_is_left_over(tmp_path: Path, started: list[int]) -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, check=True)
    orphan = int(done.stdout)
    started.append(orphan)
    if psutil.Process(orphan).ppid() != 1:
        pytest.skip("another process than init adopts here")
    use = (GpuUse(0, (os.getpid(), orphan), 10**9),)

    found = run(tmp_path, use=lambda _gpus: use)["gpus"]

    # Where the test runs in a container or a job, that ends the process.
    owned = OWNED.search(Path("/proc/self/cgroup").read_text()) is not None
    assert ("pass" if owned else "fail") == found.status
    assert owned or f"({orphan}, " in found.message
    assert f"({os.getpid()}, " not in found.message


def test_a_driver_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    found = run(tmp_path, use=lambda _gpus: "The GPU driver did not answer.")

    assert ("error", "The GPU driver did not answer.") == (
        found["gpus"].status,
        found["gpus"].message,
    )


def test_zombies_of_one_parent_are_counted(tmp_path: Path, started: list[int]) -> None:
    parent = subprocess.Popen([sys.executable, "-c", ZOMBIES], stdout=subprocess.PIPE, text=True)
    started.append(parent.pid)
    assert parent.stdout is not None
    assert parent.stdout.readline()
    wait_until(lambda: "warn" == run(tmp_path, options={"zombies": 4})["zombies"].status)

    assert f"4 of {psutil.Process(parent.pid).name()} ({parent.pid}, " in (
        run(tmp_path, options={"zombies": 4})["zombies"].message
    )
    parent.kill()
    parent.communicate()


def test_a_process_that_is_stuck_in_the_kernel_is_named(tmp_path: Path, started: list[int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK])
    started.append(process.pid)
    seen = psutil.Process(process.pid)
    # One that waits for the disk while it starts has no child yet.
    wait_until(lambda: seen.children() and seen.status() == psutil.STATUS_DISK_SLEEP)
    started.append(seen.children()[0].pid)

    found = run(tmp_path)["stuck"]
    process.kill()
    process.wait()

    assert "fail" == found.status
    assert f"({process.pid}, " in found.message
