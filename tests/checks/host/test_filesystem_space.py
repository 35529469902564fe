"""Space left on file systems, on a real small one where that is allowed."""

from __future__ import annotations

import os
import subprocess
from collections import namedtuple
from typing import TYPE_CHECKING

import pytest

from peerwatch_checks.check import Context
from peerwatch_checks.checks.host.filesystem_space import FilesystemSpaceOptions, filesystem_space

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Statvfs = namedtuple("Statvfs", "f_blocks f_bfree f_bavail f_files f_ffree f_favail")


def outcomes(folder: Path, *paths: str) -> list[tuple[str, str]]:
    options = FilesystemSpaceOptions(paths=paths or ("/",))
    context = Context(options, "n1", folder, 10, rootfs=folder)
    return [(each.device, each.status) for each in filesystem_space(context)]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (Statvfs(1000, 500, 450, 100, 90, 90), "pass"),
        # What is kept for root counts as little as in df: 800 of 950.
        (Statvfs(1000, 200, 150, 100, 90, 90), "warn"),
        (Statvfs(1000, 40, 30, 100, 90, 90), "fail"),
        (Statvfs(1000, 900, 900, 100, 1, 1), "fail"),
        # btrfs and NFS count no inodes, and an empty file system has no blocks.
        (Statvfs(1000, 900, 900, 0, 0, 0), "pass"),
        (Statvfs(0, 0, 0, 0, 0, 0), "pass"),
    ],
    ids=["empty", "warning", "full", "no inodes left", "inodes not counted", "no blocks"],
)
def test_how_full_it_may_be(
    state: Statvfs, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: state)

    assert [("/", status)] == outcomes(tmp_path)


def test_paths_on_one_file_system_are_one_result(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()

    assert ["/"] == [device for device, _status in outcomes(tmp_path, "/", "/var")]


def test_a_path_that_is_not_there_is_an_error_and_costs_no_other(tmp_path: Path) -> None:
    assert ["error", "/gone"] == [outcomes(tmp_path, "/gone", "/")[0][i] for i in (1, 0)]
    assert "/" == outcomes(tmp_path, "/gone", "/")[1][0]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
def test_a_full_disk(small: Path, tmp_path: Path) -> None:
    assert [("/small", "pass")] == outcomes(tmp_path, "/small")

    (small / "core").write_bytes(bytes(1024 * 1024))

    assert [("/small", "fail")] == outcomes(tmp_path, "/small")
