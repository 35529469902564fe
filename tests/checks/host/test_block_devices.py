"""Disks that the kernel has given up, errors that file systems recorded, RAIDs that lack a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_checks.check import Context, Options, Outcome, Skip
from peerwatch_checks.checks.host.block_devices import block_devices

NOW = 1_764_000_000.0


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def run(sysfs: Path) -> dict[str, Outcome]:
    context = Context(Options(), "n1", sysfs, 60.0, sysfs=sysfs)
    return {each.device: each for each in block_devices(context, now=lambda: NOW)}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    put(tmp_path / "block/sda/device/state", "running")
    put(tmp_path / "class/nvme/nvme0/state", "live")
    put(tmp_path / "fs/ext4/sda1/errors_count", "0")
    put(tmp_path / "fs/ext4/sda1/last_error_time", "0")
    put(tmp_path / "fs/ext4/features/metadata_csum_seed", "supported")
    put(tmp_path / "block/md0/md/degraded", "0")
    return tmp_path


def test_disks_that_are_well(node: Path) -> None:
    (found,) = run(node).values()
    assert ("pass", "4 disks, file systems") == (found.status, found.message[:21])


@pytest.mark.parametrize(
    ("files", "device", "status"),
    [
        ({"block/sda/device/state": "offline"}, "sda", "fail"),
        ({"class/nvme/nvme0/state": "dead"}, "nvme0", "fail"),
        ({"class/nvme/nvme0/state": "resetting"}, "", "pass"),
        (
            {"fs/ext4/sda1/errors_count": "7", "fs/ext4/sda1/last_error_time": f"{NOW - 7200:.0f}"},
            "ext4 sda1",
            "fail",
        ),
        # Long ago, and not repaired since.
        (
            {"fs/ext4/sda1/errors_count": "7", "fs/ext4/sda1/last_error_time": "9"},
            "ext4 sda1",
            "warn",
        ),
        ({"fs/ext4/sda1/errors_count": "what"}, "", "pass"),
        ({"block/md0/md/degraded": "1"}, "md0", "warn"),
    ],
)
def test_what_is_not_well_is_named(
    node: Path, files: dict[str, str], device: str, status: str
) -> None:
    for name, text in files.items():
        put(node / name, text)
    ((name, found),) = run(node).items()
    assert (device, status) == (name, found.status)


def test_no_disk_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="No disk"):
        run(tmp_path)
