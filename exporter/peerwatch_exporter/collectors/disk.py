"""Storage traffic of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData, raise_partial
from peerwatch_exporter.sources.host.usage import MAX_DISKS, usage_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_PER_PROCESS = "with scope 'processes', the sum over the node's processes"

SPECS = (
    MetricSpec(
        "host_disk_read_bytes_total",
        "counter",
        "bytes",
        ("disk",),
        f"Bytes read from the disk; {_PER_PROCESS} as disk 'processes'.",
        "/proc/diskstats sectors read; /proc/<pid>/io read_bytes",
    ),
    MetricSpec(
        "host_disk_written_bytes_total",
        "counter",
        "bytes",
        ("disk",),
        f"Bytes written to the disk; {_PER_PROCESS} as disk 'processes'.",
        "/proc/diskstats sectors written; /proc/<pid>/io write_bytes",
    ),
    MetricSpec(
        "host_disk_io_seconds_total",
        "counter",
        "seconds",
        ("disk",),
        "Time in which the disk had at least one request to serve.",
        "/proc/diskstats time spent doing I/Os",
    ),
)


@register(
    "disk",
    "bytes read and written, time busy, by disk",
    interval_seconds=5,
    topic="Host",
    metrics=SPECS,
)
class DiskCollector:
    """Publishes the traffic of whole disks, or of the node's processes."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._usage = usage_source(config, sources)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_disk_*``.

        Raises
        ------
        NoData
            If the machine has no disk.
        PartialData
            If it has more than 256, or some cannot be read.
        """
        problems: list[Exception] = []
        disks = self._usage.disks(problems)
        if not disks:
            raise_partial(problems, found=False)
            raise NoData("The machine lists no disk.")
        read = family("host_disk_read_bytes_total")
        written = family("host_disk_written_bytes_total")
        busy = family("host_disk_io_seconds_total")
        for disk, stat in list(disks.items())[:MAX_DISKS]:
            read.add_metric([disk], stat.read_bytes)
            written.add_metric([disk], stat.written_bytes)
            if stat.io_seconds is not None:
                busy.add_metric([disk], stat.io_seconds)
        yield read
        yield written
        yield busy
        if len(disks) > MAX_DISKS:
            raise PartialData(f"Only the first {MAX_DISKS} disks are published.")
        raise_partial(problems, found=True)
