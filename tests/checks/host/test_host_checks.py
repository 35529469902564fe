"""Memory, CPUs, disks and mounts: what is healthy passes, and each injected fault is named."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from peerwatch_checks.check import Context, Options, Outcome, Skip
from peerwatch_checks.checks.host import disk_write_read as disk_check
from peerwatch_checks.checks.host.cpu_compute import CpuComputeOptions, cpu_compute, digest_of
from peerwatch_checks.checks.host.disk_write_read import DiskWriteReadOptions, disk_write_read
from peerwatch_checks.checks.host.memory_copy import MemoryCopyOptions, copy_memory, memory_copy
from peerwatch_checks.checks.host.mounts import MountsOptions, mounts

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 1024**2


def context(folder: Path, options: Options, **given: Any) -> Context:
    return Context(options, "n1", folder, 60.0, **given)


def memory(folder: Path, copy: Any = copy_memory, **given: Any) -> Outcome:
    options = MemoryCopyOptions(size_bytes=8 * MEBIBYTE)
    (outcome,) = memory_copy(context(folder, options, **given), copy=copy)
    return outcome


def test_memory_is_measured(tmp_path: Path) -> None:
    outcome = memory(tmp_path)

    assert ("pass", "GB/s") == (outcome.status, outcome.unit)
    assert (outcome.value or 0) > 0


def test_memory_that_is_slower_than_that_of_peers_fails(tmp_path: Path) -> None:
    def slow(target: memoryview, source: memoryview) -> None:
        copy_memory(target, source)
        time.sleep(0.5)

    # At most 8 MiB in half a second: a hundredth of what any machine does.
    outcome = memory(tmp_path, slow, peers={"": (1.0,) * 8})

    assert "fail" == outcome.status
    assert "the median of 8 peers is 1, the limit 0.7" in outcome.message


def test_one_flipped_bit_in_memory_is_found(tmp_path: Path) -> None:
    def flipping(target: memoryview, source: memoryview) -> None:
        copy_memory(target, source)
        target[1_001] ^= 16

    outcome = memory(tmp_path, flipping)

    assert ("fail", "high") == (outcome.status, outcome.severity)


def test_cpus_compute_alike(tmp_path: Path) -> None:
    (outcome,) = cpu_compute(context(tmp_path, CpuComputeOptions()))

    assert ("pass", "MB/s") == (outcome.status, outcome.unit)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one CPU there is no other")
def test_a_cpu_that_computes_wrong_is_named(tmp_path: Path) -> None:
    bad = max(os.sched_getaffinity(0))

    def wrong(block: bytes) -> bytes:
        digest = digest_of(block)
        return digest if os.sched_getaffinity(0) != {bad} or wrong.count() else digest[::-1]

    calls: list[int] = []
    wrong.count = lambda: calls.append(1) or len(calls) > 1  # type: ignore[attr-defined]
    before = os.sched_getaffinity(0)

    found = list(cpu_compute(context(tmp_path, CpuComputeOptions()), compute=wrong))

    failed = [each for each in found if each.status == "fail"]
    assert [(f"cpu{bad}", "high")] == [(each.device, each.severity) for each in failed]
    assert before == os.sched_getaffinity(0)


def disk(folder: Path, *paths: str, **given: Any) -> list[Outcome]:
    options = DiskWriteReadOptions(size_bytes=MEBIBYTE, paths=paths)
    return list(disk_write_read(context(folder, options, rootfs=folder), **given))


def test_a_disk_is_written_and_read(tmp_path: Path) -> None:
    found = disk(tmp_path)

    assert [("work write", "pass"), ("work read", "pass")] == [
        (each.device, each.status) for each in found
    ]
    assert [] == list(tmp_path.iterdir())


def test_a_disk_that_changes_what_is_written_is_found(tmp_path: Path) -> None:
    # Whatever the first byte is, it is another one then.
    found = disk(tmp_path, write=lambda file, block: file.write(bytes([block[0] ^ 1]) + block[1:]))

    assert [("fail", "high")] == [(each.status, each.severity) for each in found]


@pytest.mark.parametrize(
    ("number", "status", "severity"),
    [
        (errno.EIO, "fail", "high"),
        (errno.EROFS, "fail", "high"),
        (errno.ENOSPC, "fail", None),
        (errno.EACCES, "error", None),
    ],
    ids=["input and output", "read-only", "full", "not allowed"],
)
def test_errors_of_a_disk(number: int, status: str, severity: str | None, tmp_path: Path) -> None:
    def failing(_file: object, _block: bytes) -> None:
        raise OSError(number, os.strerror(number))

    found = disk(tmp_path, write=failing)

    assert [(status, severity)] == [(each.status, each.severity) for each in found]


def test_a_folder_that_is_not_there_is_an_error_and_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    assert ["error", "pass", "pass"] == [each.status for each in disk(tmp_path, "/gone", "/data")]


def mounted(folder: Path, *paths: str, **given: Any) -> list[tuple[str, str]]:
    found = mounts(context(folder, MountsOptions(paths=paths), rootfs=folder, **given))
    return [(each.device, each.status) for each in found]


def test_mounts_that_are_there_and_not(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    assert [("/data", "fail"), ("/gone", "fail")] == mounted(tmp_path, "/data", "/gone")
    found = mounts(context(tmp_path, MountsOptions(paths=("/proc",))))
    assert ["pass"] == [each.status for each in found]


def test_a_folder_of_the_same_file_system_that_is_bound_is_mounted(tmp_path: Path) -> None:
    for name in ("bound", "with blank", "folder", "self"):
        (tmp_path / name).mkdir()
    line = "65 44 254:0 /source {} rw,relatime shared:1 - ext4 /dev/vda rw\n"
    points = (tmp_path / "bound", str(tmp_path / "with blank").replace(" ", "\\040"))
    lines = (*map(line.format, points), line.format(tmp_path / "gone"), "garbled\n")
    (tmp_path / "self/mountinfo").write_text("".join(lines))

    names = ("/bound/", "/with blank", "/folder", "/gone")
    assert [
        ("/bound/", "pass"),
        ("/with blank", "pass"),
        ("/folder", "fail"),
        ("/gone", "fail"),
    ] == (mounted(tmp_path, *names, procfs=tmp_path))


def test_without_settings_it_is_what_fstab_mounts_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/fstab").write_text(
        "# a comment\n"
        "UUID=1 /data ext4 defaults 0 2\n"
        "UUID=2 none swap sw 0 0\n"
        "server:/x /home\\040dir nfs rw,_netdev 0 0\n"
        "/dev/sr0 /media/cdrom iso9660 ro,noauto 0 0\n"
        "broken\n"
    )

    assert [("/data", "fail"), ("/home dir", "fail")] == mounted(tmp_path)


def test_no_mounts_to_test_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(Skip, match=r"checks\.mounts\.paths"):
        mounted(tmp_path)


class Clock:
    """A clock by which a second passes whenever it is read."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_slow_disks_share_the_time_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = tuple(f"disk{number}" for number in range(6))
    for each in folders:
        (tmp_path / each).mkdir()
    clock = Clock()
    monkeypatch.setattr(disk_check, "time", clock)
    # No disk reaches it, so that each is tried for as long as there is time.
    options = DiskWriteReadOptions(paths=folders, size_bytes=MEBIBYTE, floor=1e12)

    found = list(disk_write_read(context(tmp_path, options, rootfs=tmp_path)))

    assert 12 == len(found)
    assert clock.now <= 60.0
