"""Compiled code that cannot be kept, or was kept broken, costs time and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from peerwatch_detector import compiled
from peerwatch_detector.service.prepare import warn_if_not_kept

MODULE = """
from peerwatch_detector.compiled import compiled, why_not_kept

@compiled
def twice(number):
    return 2 * number

assert twice(3) == 6
print(len(twice.stats.cache_hits), why_not_kept())
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "twice.py"
    path.write_text(MODULE)
    return path


def started(module: Path, cache: Path) -> list[str]:
    """Return how much was loaded from ``cache`` by a process of its own, and what it says."""
    environment = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(module)],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip().split(" ", 1)


def test_code_is_kept(module: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    assert [["0", "None"], ["1", "None"]] == [started(module, cache) for _ in range(2)]


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_half_a_file_is_compiled_anew_and_once_only(
    module: Path, tmp_path: Path, ending: str
) -> None:
    cache = tmp_path / "cache"
    started(module, cache)
    (file,) = (file for file in cache.rglob(f"twice.*.{ending}"))
    os.truncate(file, file.stat().st_size // 2)

    assert [["0", "None"], ["1", "None"]] == [started(module, cache) for _ in range(2)]


class FullDisk:
    """A cache of numba's that cannot write."""

    cache_path = "/full"

    def load_overload(self, *asked: object) -> None:
        return None

    def save_overload(self, *made: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_not_kept", [])


@pytest.mark.usefixtures("nothing_told")
def test_a_full_disk_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    compiled._Kept(FullDisk()).save_overload("signature", "code")
    warn_if_not_kept()

    assert "/full: [Errno 28] No space left on device; set NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.usefixtures("nothing_told")
def test_nothing_is_told_where_all_was_kept(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_not_kept()

    assert "" == caplog.text


@pytest.mark.usefixtures("nothing_told")
def test_a_package_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.load()
    njit = compiled._numba.njit

    def refuse(*, cache: bool = False, **options: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(compiled, "_numba", SimpleNamespace(njit=refuse))
    double = compiled.compiled(lambda number: 2 * number)

    assert 6 == double(3)
    assert "nor the user's cache folder can be written" in str(compiled.why_not_kept())


LATER = """
import sys
from peerwatch_detector import compiled
from peerwatch_detector.reading.decode import decimals
from peerwatch_detector.web import run

assert "numba" not in sys.modules
kept = decimals.as_float
assert type(kept).__name__ == "_Deferred"
assert kept(0x3FF0000000000000) == 1.0
assert "numba" in sys.modules
# Where they are defined, and so where compiled code looks for them, nothing stands between.
assert type(decimals.as_float).__name__ == type(compiled.as_float).__name__ == "CPUDispatcher"
print(len(kept.stats.cache_hits) + len(kept.stats.cache_misses))
"""


def test_numba_is_imported_at_the_first_call() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LATER], env=environment, check=True, stdout=subprocess.PIPE
    )

    assert b"1" == done.stdout.strip()


def test_a_numba_that_breaks_leaves_the_functions_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "_numba", None)
    monkeypatch.setattr(compiled, "AVAILABLE", True)
    monkeypatch.setattr(compiled, "MISSING", None)
    monkeypatch.setattr(compiled._Deferred, "every", [])
    monkeypatch.setitem(sys.modules, "numba", None)
    double = compiled.compiled(lambda number: 2 * number)

    assert 6 == double(3)
    assert not compiled.ready()
    assert "numba cannot be imported" in str(compiled.failure())
