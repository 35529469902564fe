"""TCP of the network namespace the exporter runs in: what is sent again, what is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.sources.procfs import GarbledFileError, Procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources


@register("tcp", "TCP retransmissions, timeouts, bytes waiting in queues")
class TcpCollector:
    """Publishes TCP counters and the sum of all queues."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._procfs = Procfs(sources.paths.procfs)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_tcp_*``."""
        tcp = self._procfs.protocol_counters("snmp", "Tcp")
        extended = self._procfs.protocol_counters("netstat", "TcpExt")
        queues = self._procfs.tcp_queues()
        try:
            values = {
                "host_tcp_retransmitted_segments_total": tcp["RetransSegs"],
                "host_tcp_sent_segments_total": tcp["OutSegs"],
                "host_tcp_timeouts_total": extended["TCPTimeouts"],
                "host_tcp_send_queue_bytes": queues.send_bytes,
                "host_tcp_receive_queue_bytes": queues.receive_bytes,
            }
        except KeyError as error:
            raise GarbledFileError(self._procfs.root / "net", f"no {error.args[0]}") from error
        for name, value in values.items():
            single = family(name)
            single.add_metric([], value)
            yield single
