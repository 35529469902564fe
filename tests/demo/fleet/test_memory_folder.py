"""The folder in memory: one that is in use stays, one whose process was killed goes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peerwatch_demo.fleet.memory_folder import MemoryFolder, remove_left_behind

USER = os.geteuid()

_MAKES_ONE = """
import sys, time
from pathlib import Path
from peerwatch_demo.fleet.memory_folder import MemoryFolder
folder = MemoryFolder.make(Path(sys.argv[1]))
(folder.path / "gpu-1").mkdir()
(folder.path / "gpu-1" / "stat").write_text("cpu 1 2 3")
print(folder.path, flush=True)
time.sleep(60)
"""


@contextmanager
def another(memory: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Give another process and the folder that it made."""
    command = [sys.executable, "-c", _MAKES_ONE, str(memory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    with another(tmp_path) as (process, left):
        assert (left / "gpu-1" / "stat").exists()
        process.kill()
        process.wait()

        remove_left_behind(tmp_path, USER)

    assert [] == list(tmp_path.iterdir())


def test_what_a_living_process_uses_stays(tmp_path: Path) -> None:
    with another(tmp_path) as (process, used):
        assert f"peerwatch-fleet-{process.pid}-" in str(used)

        remove_left_behind(tmp_path, USER)

        assert "cpu 1 2 3" == (used / "gpu-1" / "stat").read_text()


def test_another_process_with_the_number_of_the_dead_one_keeps_nothing(tmp_path: Path) -> None:
    left = tmp_path / f"peerwatch-fleet-{os.getpid()}-abc"
    left.mkdir()

    remove_left_behind(tmp_path, USER)

    assert not left.exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "peerwatch-fleet-1-theirs"
    theirs.mkdir()
    remove_left_behind(tmp_path, USER + 1)
    assert theirs.exists()

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inside").mkdir(parents=True)
    for name, make in (("link", lambda path: path.symlink_to(elsewhere)), ("file", Path.touch)):
        make(tmp_path / f"peerwatch-fleet-1-{name}")
    before = sorted(path for path in tmp_path.rglob("*") if path != theirs)

    remove_left_behind(tmp_path, USER)

    assert before == sorted(tmp_path.rglob("*"))


def test_it_is_gone_when_it_is_removed_and_may_be_made_again(tmp_path: Path) -> None:
    first, second = MemoryFolder.make(tmp_path), MemoryFolder.make(tmp_path)
    first.remove()

    assert [second.path] == list(tmp_path.iterdir())
    second.remove()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(second.lock)


def test_one_that_was_taken_before_it_was_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, taken = fcntl.flock, []

    def lock(opened: int, how: int) -> None:
        if not taken:
            taken.extend(tmp_path.iterdir())
            # Another demo is quicker.
            remove_left_behind(tmp_path, USER)
        real(opened, how)

    monkeypatch.setattr(fcntl, "flock", lock)

    folder = MemoryFolder.make(tmp_path)

    assert [folder.path] == list(tmp_path.iterdir())
    assert [folder.path] != taken
