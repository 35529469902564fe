"""Network interfaces of the namespace the exporter runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.procfs import Procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources


@register("network", "bytes, packets, errors and drops by network interface")
class NetworkCollector:
    """Publishes the counters of every interface."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._procfs = Procfs(sources.paths.procfs)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_network_*``."""
        interfaces = self._procfs.interfaces()
        for what in ("bytes", "packets", "errors", "drops"):
            receive = family(f"host_network_receive_{what}_total")
            transmit = family(f"host_network_transmit_{what}_total")
            for name, stat in interfaces.items():
                received, transmitted = getattr(stat, what)
                receive.add_metric([name], received)
                transmit.add_metric([name], transmitted)
            yield receive
            yield transmit
