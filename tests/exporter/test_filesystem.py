"""The filesystem collector: which mounts count, what is asked, and what hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hardware_cases import collected as collect_all
from hardware_cases import only
from peerwatch_exporter.collectors.filesystem import FilesystemCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig, PathsConfig
from peerwatch_exporter.sources import Sources, real_sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.filesystems import Space, SpaceReader, local_mounts, statvfs
from peerwatch_exporter.sources.host.procfs import GarbledFileError
from peerwatch_exporter.sources.host.queries import HostQueries

ROOT = "28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro"
LOCAL = "41 28 259:5 / /local rw,noatime - xfs /dev/md0 rw,inode64"
HOME = "77 28 0:52 / /home rw,relatime - nfs4 10.9.0.3:/home rw,hard"
HALF = Space(1000, 500, 100, 50)


def tree(path: Path, *lines: str, process: str = "1") -> Path:
    (path / process).mkdir(exist_ok=True)
    (path / process / "mountinfo").write_text("".join(f"{line}\n" for line in lines))
    return path


def mounted(path: Path, *lines: str) -> dict[str, bool]:
    """Return whether each filesystem refuses writes, by mount point."""
    return {mount.mountpoint: mount.refuses_writes for mount in local_mounts(tree(path, *lines))}


def sources(path: Path, ask) -> Sources:
    return Sources(Paths(path, path, path), queries=HostQueries(space=ask))


@pytest.mark.parametrize(
    "line",
    [
        HOME,
        "50 28 0:60 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw,flock",
        "51 28 0:61 / /gpfs rw - gpfs gpfs0 rw",
        "52 28 0:62 / /mnt/s3 rw - fuse.s3fs s3fs rw",
        "53 28 0:63 / /net rw - autofs systemd-1 rw,fd=41",
        "54 28 7:3 / /snap/core ro - squashfs /dev/loop3 ro",
        "55 28 0:64 / /var/lib/docker/merged rw - overlay overlay rw,lowerdir=/a",
        "56 28 0:65 / /var/lib/kubelet/pods/x rw - tmpfs tmpfs rw",
    ],
)
def test_only_filesystems_of_the_node_s_own_disks_are_asked(tmp_path, line):
    assert {"/": False} == mounted(tmp_path, ROOT, line)


def test_what_lies_below_a_mount_of_the_network_is_not_asked(tmp_path):
    below = "60 77 259:9 / /home/local rw - ext4 /dev/sdb1 rw"

    assert {"/": False} == mounted(tmp_path, ROOT, HOME, below)


def test_a_filesystem_that_is_mounted_twice_counts_once_by_its_shortest_path(tmp_path):
    bind = "42 28 259:5 /images /var/lib/images rw,noatime - xfs /dev/md0 rw,inode64"

    assert {"/": False, "/local": False} == mounted(tmp_path, bind, ROOT, LOCAL)


def test_a_mount_hides_what_was_mounted_on_the_same_path_before(tmp_path):
    again = "90 41 259:7 / /local ro - ext4 /dev/sdc1 ro"
    (mount,) = [m for m in local_mounts(tree(tmp_path, ROOT, LOCAL, again)) if m.mountpoint != "/"]

    assert ("/local", "ext4") == (mount.mountpoint, mount.filesystem_type)


@pytest.mark.parametrize(
    ("options", "superblock", "refuses"),
    [
        ("rw,relatime", "rw,errors=remount-ro", False),
        ("rw,relatime", "ro,errors=remount-ro", True),
        ("rw,relatime", "rw,emergency_ro", True),
        ("rw,relatime", "rw,shutdown", True),
        # On purpose: an image that is never written.
        ("ro,relatime", "ro", False),
        ("ro,relatime", "rw", False),
    ],
)
def test_read_only_counts_where_it_was_not_asked_for(tmp_path, options, superblock, refuses):
    line = f"28 1 259:2 / / {options} shared:1 - ext4 /dev/sda2 {superblock}"

    assert {"/": refuses} == mounted(tmp_path, line)


def test_blanks_in_a_mount_point_are_read(tmp_path):
    assert {"/a b": False} == mounted(tmp_path, "28 1 259:2 / /a\\040b rw - ext4 /dev/sda2 rw")


@pytest.mark.parametrize("line", ["garbage", "28 1 259:2 / / rw shared:1 ext4", "1 2 - ext4 a rw"])
def test_a_garbled_line_is_named(tmp_path, line):
    with pytest.raises(GarbledFileError, match="mountinfo does not have the expected form"):
        local_mounts(tree(tmp_path, line))


def test_the_list_of_the_own_process_serves_where_the_first_is_out_of_sight(tmp_path):
    assert ["/"] == [m.mountpoint for m in local_mounts(tree(tmp_path, ROOT, process="self"))]


def test_a_filesystem_that_hangs_costs_only_itself(tmp_path):
    released, asked = threading.Event(), []

    def ask(mountpoint):
        asked.append(mountpoint)
        if mountpoint == "/local":
            released.wait()
        return HALF

    reader = SpaceReader(ask, patience_seconds=0.2)
    # Behind the one that hangs: read from the next time on.
    first, stuck = reader.read(["/", "/local", "/data"])
    second, still = reader.read(["/", "/local", "/data"])

    assert ({"/"}, {"/local"}) == (set(first), set(stuck))
    assert ({"/", "/data"}, {"/local"}) == (set(second), set(still))
    assert 1 == asked.count("/local")
    released.set()
    for thread in threading.enumerate():
        if thread.name == "statvfs":
            thread.join()
    assert {"/", "/local", "/data"} == set(reader.read(["/", "/local", "/data"])[0])


def test_the_collector_says_which_filesystem_does_not_answer(tmp_path):
    released = threading.Event()

    def ask(mountpoint):
        if mountpoint == "/local":
            released.wait()
        return HALF

    collector = FilesystemCollector(ExporterConfig(), sources(tree(tmp_path, ROOT, LOCAL), ask))
    samples = collect_all(collector)
    released.set()

    assert {("/", "ext4"): 0, ("/local", "xfs"): 1} == only(samples, "host_filesystem_unresponsive")
    assert {("/", "ext4"): 500} == only(samples, "host_filesystem_available_bytes")
    assert {("/", "ext4"): 50} == only(samples, "host_filesystem_inodes_free")


def test_a_filesystem_that_is_gone_has_no_size_and_does_not_fail(tmp_path):
    def ask(mountpoint):
        raise FileNotFoundError(mountpoint)

    samples = collect_all(FilesystemCollector(ExporterConfig(), sources(tree(tmp_path, ROOT), ask)))

    assert {} == only(samples, "host_filesystem_size_bytes")
    assert {("/", "ext4"): 0} == only(samples, "host_filesystem_unresponsive")


def test_a_container_without_the_node_s_files_knows_what_is_read_only_and_asks_nothing(tmp_path):
    broken = "28 1 259:2 / / rw - ext4 /dev/sda2 ro"
    (tmp_path / "sys").mkdir()
    paths = PathsConfig(procfs=tree(tmp_path, broken), sysfs=tmp_path / "sys")
    real = real_sources(ExporterConfig(paths=paths))
    collected = FilesystemCollector(ExporterConfig(paths=paths), real).collect()
    rows = {}
    # The families come before the error.
    with pytest.raises(PartialData, match="files are not in the exporter's container") as missing:
        rows.update(
            ((item.name, *labels), value) for item in collected for labels, value in item.rows
        )

    assert {("host_filesystem_write_refused", "/", "ext4"): 1} == rows
    assert "source_missing" == missing.value.error_class


def test_the_node_s_files_are_asked_where_they_are_mounted(tmp_path):
    root = tmp_path / "root"
    (root / "local").mkdir(parents=True)
    (tmp_path / "sys").mkdir()
    paths = PathsConfig(procfs=tree(tmp_path, LOCAL), sysfs=tmp_path / "sys", rootfs=root)
    real = real_sources(ExporterConfig(paths=paths))
    samples = collect_all(FilesystemCollector(ExporterConfig(paths=paths), real))

    expected = statvfs(str(root / "local")).size_bytes
    assert {("/local", "xfs"): expected} == only(samples, "host_filesystem_size_bytes")


def test_without_a_list_of_mounts_there_is_no_data(tmp_path):
    with pytest.raises(NoData, match="no list of what is mounted"):
        collect_all(FilesystemCollector(ExporterConfig(), sources(tmp_path, statvfs)))


def test_more_filesystems_than_64_are_cut_and_said(tmp_path):
    lines = [f"{n} 1 259:{n} / /d{n} rw - xfs /dev/x{n} rw" for n in range(70)]
    collector = FilesystemCollector(
        ExporterConfig(), sources(tree(tmp_path, *lines), lambda _: HALF)
    )

    with pytest.raises(PartialData, match="first 64 of 70"):
        collect_all(collector)
