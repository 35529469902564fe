"""Local filesystems: space, inodes, and whether one has become read-only or does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData, SourceMissing
from peerwatch_exporter.sources.host.filesystems import SpaceReader, local_mounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.filesystems import Space

_LABELS = ("mountpoint", "filesystem_type")
_STATVFS = "statvfs"
_MOUNTINFO = "/proc/1/mountinfo"

SPECS = (
    MetricSpec(
        "host_filesystem_size_bytes",
        "gauge",
        "bytes",
        _LABELS,
        "Size of a local filesystem, each once, and of /dev/shm, /run and /tmp in memory. "
        "Filesystems of the network are not asked: one whose server is away never answers.",
        f"{_STATVFS} f_blocks",
    ),
    MetricSpec(
        "host_filesystem_available_bytes",
        "gauge",
        "bytes",
        _LABELS,
        "Space that processes of ordinary users may still fill.",
        f"{_STATVFS} f_bavail",
    ),
    MetricSpec(
        "host_filesystem_inodes",
        "gauge",
        "1",
        _LABELS,
        "Files the filesystem can hold; none for those without a limit (Btrfs, ZFS).",
        f"{_STATVFS} f_files",
    ),
    MetricSpec(
        "host_filesystem_inodes_free",
        "gauge",
        "1",
        _LABELS,
        "Files that can still be made.",
        f"{_STATVFS} f_favail",
    ),
    MetricSpec(
        "host_filesystem_write_refused",
        "gauge",
        "1",
        _LABELS,
        "1 if the kernel has made the filesystem read-only after an error, although it is mounted "
        "for writing; 0 as well for one that is mounted read-only on purpose.",
        f"{_MOUNTINFO}: options of the mount, and of the superblock (ro, emergency_ro, shutdown)",
    ),
    MetricSpec(
        "host_filesystem_unresponsive",
        "gauge",
        "1",
        _LABELS,
        "1 while the filesystem does not answer: its disk or driver hangs. Its size is missing "
        "then; the others are read all the same.",
        _STATVFS,
    ),
)

# A node has a handful; every one has 6 series, so that these are 384 at most.
_MAX_FILESYSTEMS = 64
# Half of a collector's deadline (0.8 s): filesystems in the kernel's memory answer in microseconds.
_PATIENCE_SECONDS = 0.4


class _FilesMissing(PartialData):
    error_class = SourceMissing.error_class


@register(
    "filesystem",
    "space, inodes and state of local filesystems",
    interval_seconds=10,
    topic="Host",
    metrics=SPECS,
)
class FilesystemCollector:
    """Publishes each local filesystem of the machine once."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._procfs = sources.paths.procfs
        ask = sources.queries.space
        self._reader = None if ask is None else SpaceReader(ask, _PATIENCE_SECONDS)
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_filesystem_*``.

        Raises
        ------
        NoData
            If there is no list of what is mounted, or no local filesystem on it.
        PartialData
            If it has more than 64, or its files are not there, so that only what the kernel
            refuses is known.
        """
        if not self._whole_machine:
            raise NoData("Filesystems belong to the whole machine, not to scope 'processes'.")
        try:
            mounts = local_mounts(self._procfs)
        except FileNotFoundError as error:
            raise NoData(f"There is no list of what is mounted: {error}.") from error
        if not mounts:
            raise NoData(f"No local filesystem is mounted by {self._procfs / '1' / 'mountinfo'}.")
        published = mounts[:_MAX_FILESYSTEMS]
        spaces, stuck = self._read([mount.mountpoint for mount in published])
        size, available, inodes, free, refused, unresponsive = (family(s.name) for s in SPECS)
        for mount in published:
            labels = (mount.mountpoint, mount.filesystem_type)
            refused.add_metric(labels, mount.refuses_writes)
            if self._reader is not None:
                unresponsive.add_metric(labels, mount.mountpoint in stuck)
            space = spaces.get(mount.mountpoint)
            # An empty one (a container's empty bind mount) has no share to be full.
            if space is None or not space.size_bytes:
                continue
            size.add_metric(labels, space.size_bytes)
            available.add_metric(labels, space.available_bytes)
            if space.inodes:
                inodes.add_metric(labels, space.inodes)
                free.add_metric(labels, space.inodes_free)
        yield from (size, available, inodes, free, refused, unresponsive)
        if len(mounts) > len(published):
            raise PartialData(
                f"Only the first {_MAX_FILESYSTEMS} of {len(mounts)} filesystems are published."
            )
        if self._reader is None:
            raise _FilesMissing("The node's files are not in the exporter's container.")

    def _read(self, mountpoints: Sequence[str]) -> tuple[Mapping[str, Space], Collection[str]]:
        # A container that sees the node's /proc and not its files still knows what is read-only.
        return ({}, ()) if self._reader is None else self._reader.read(mountpoints)
