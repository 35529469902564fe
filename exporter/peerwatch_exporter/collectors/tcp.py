"""TCP of the network namespace the exporter runs in: what is sent again, what is stuck."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import MissingValues, raise_partial
from peerwatch_exporter.sources.host.procfs import GarbledFileError, Procfs
from peerwatch_exporter.sources.host.rarely import Rarely

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.procfs import TcpQueues

# A long file with counters that nothing but queries by hand needs: three values per scrape of 15 s.
_SLOW_SECONDS = 5

SPECS = (
    MetricSpec(
        "host_tcp_retransmitted_segments_total",
        "counter",
        "1",
        (),
        "TCP segments sent again because no acknowledgement came: loss or a stalled peer.",
        "/proc/net/snmp Tcp RetransSegs",
    ),
    MetricSpec(
        "host_tcp_sent_segments_total",
        "counter",
        "1",
        (),
        "TCP segments sent, without those sent again.",
        "/proc/net/snmp Tcp OutSegs",
    ),
    MetricSpec(
        "host_tcp_timeouts_total",
        "counter",
        "1",
        (),
        "TCP retransmission timers that ran out.",
        "/proc/net/netstat TcpExt TCPTimeouts",
        every_seconds=_SLOW_SECONDS,
    ),
    MetricSpec(
        "host_tcp_syn_retransmissions_total",
        "counter",
        "1",
        (),
        "TCP connection requests sent again because no answer came: the peer or the way to it is "
        "down.",
        "/proc/net/netstat TcpExt TCPSynRetrans",
        every_seconds=_SLOW_SECONDS,
    ),
    MetricSpec(
        "host_tcp_send_queue_bytes",
        "gauge",
        "bytes",
        (),
        "Bytes in the send queues of established connections: written, not yet acknowledged. "
        "Mean of the last mean_seconds; read every second, or less often where listing the "
        "sockets takes the kernel long.",
        "/proc/net/tcp and tcp6, tx_queue",
        swings=True,
    ),
    MetricSpec(
        "host_tcp_receive_queue_bytes",
        "gauge",
        "bytes",
        (),
        "Bytes in the receive queues of established connections: arrived, not yet read by the "
        "application. Mean and read as the send queues.",
        "/proc/net/tcp and tcp6, rx_queue",
        swings=True,
    ),
)


# Listing the sockets scans the kernel's whole hash table, which on a machine with much memory is
# long even if it is empty. So much of one CPU may be spent on it, a tenth of what the whole
# exporter takes (docs/benchmarks.md); in between, the last values stand.
_SHARE_OF_A_CPU = 0.001
_COUNTERS = {
    "RetransSegs": "host_tcp_retransmitted_segments_total",
    "OutSegs": "host_tcp_sent_segments_total",
}
_EXTENDED_COUNTERS = {
    "TCPTimeouts": "host_tcp_timeouts_total",
    "TCPSynRetrans": "host_tcp_syn_retransmissions_total",
}
# Not every kernel counts retransmitted connection requests.
_REQUIRED = {*_COUNTERS.values(), "host_tcp_timeouts_total"}


@register(
    "tcp", "TCP retransmissions, timeouts, bytes waiting in queues", topic="Host", metrics=SPECS
)
class TcpCollector:
    """Publishes TCP counters and the sum of all queues."""

    def __init__(
        self,
        config: ExporterConfig,  # noqa: ARG002
        sources: Sources,
        *,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._procfs = Procfs(sources.paths.procfs)
        self._monotonic = sources.monotonic
        self._cpu_clock = cpu_clock
        self._slow: Rarely[dict[str, int]] = Rarely(_SLOW_SECONDS, sources.monotonic, turn=4)
        self._queues: TcpQueues | None = None
        self._next_reading = 0.0

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_tcp_*``; a file that cannot be read costs its own values.

        Raises
        ------
        PartialData
            At the end, if some of the files could not be read.
        OSError, GarbledFileError
            If none could.
        """
        values: dict[str, int] = {}
        errors: list[Exception] = []
        for read in (self._counters, self._extended, self._queued):
            try:
                values |= read()
            except (OSError, GarbledFileError) as error:
                errors.append(error)
        if not values:
            raise_partial(errors, found=False)
        for name, value in values.items():
            single = family(name)
            single.add_metric([], value)
            yield single
        raise_partial(errors, found=True)
        missing = sorted(_REQUIRED - values.keys())
        if missing:
            raise MissingValues(f"The kernel does not give {', '.join(missing)}.")

    def _counters(self) -> dict[str, int]:
        found = self._procfs.protocol_counters("snmp", "Tcp", _COUNTERS.keys())
        return {_COUNTERS[name]: value for name, value in found.items()}

    def _extended(self) -> dict[str, int]:
        return self._slow(self._read_extended)

    def _read_extended(self) -> dict[str, int]:
        found = self._procfs.protocol_counters("netstat", "TcpExt", _EXTENDED_COUNTERS.keys())
        return {_EXTENDED_COUNTERS[name]: value for name, value in found.items()}

    def _queued(self) -> dict[str, int]:
        queues = self._read_queues()
        return {
            "host_tcp_send_queue_bytes": queues.send_bytes,
            "host_tcp_receive_queue_bytes": queues.receive_bytes,
        }

    def _read_queues(self) -> TcpQueues:
        now = self._monotonic()
        if self._queues is None or now >= self._next_reading:
            start = self._cpu_clock()
            self._queues = self._procfs.tcp_queues()
            self._next_reading = now + (self._cpu_clock() - start) / _SHARE_OF_A_CPU
        return self._queues
