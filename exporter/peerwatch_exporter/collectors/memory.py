"""Memory of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import MissingValues
from peerwatch_exporter.sources.host.usage import usage_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "host_memory_total_bytes",
        "gauge",
        "bytes",
        (),
        "Memory of the node: that of the machine, or scope.memory_bytes where it is set.",
        "/proc/meminfo MemTotal; scope.memory_bytes",
    ),
    MetricSpec(
        "host_memory_available_bytes",
        "gauge",
        "bytes",
        (),
        "Memory that can be had without swapping; with scope 'processes', the total less the "
        "resident memory of the node's processes.",
        "/proc/meminfo MemAvailable; /proc/<pid>/status VmRSS",
    ),
)


@register("memory", "memory in total and available", topic="Host", metrics=SPECS)
class MemoryCollector:
    """Publishes total and available memory."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._usage = usage_source(config, sources)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_memory_*``.

        Raises
        ------
        MissingValues
            At the end, if the kernel gives only one of the two.
        """
        usage = self._usage.memory()
        values = {
            "host_memory_total_bytes": usage.total,
            "host_memory_available_bytes": usage.available,
        }
        for name, value in values.items():
            if value is not None:
                single = family(name)
                single.add_metric([], value)
                yield single
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise MissingValues(f"/proc/meminfo does not give {' and '.join(missing)}.")
