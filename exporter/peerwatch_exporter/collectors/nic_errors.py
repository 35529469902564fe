"""Errors of RDMA NIC ports from sysfs: of the link, of the port, of RDMA transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.drivers import RDMA_ERRORS
from peerwatch_exporter.sources.nic.port_counters import PortCounter, PortCounters
from peerwatch_exporter.sources.nic.rdma import MAX_PORTS, RDMA_ROOT, RdmaPorts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_TYPED_LABELS = ("device", "port", "type")
_PORT_LABELS = ("device", "port")

SPECS = needing(
    "RDMA NIC",
    MetricSpec(
        "nic_port_errors_total",
        "counter",
        "1",
        _TYPED_LABELS,
        "Errors of the port; type is the kernel's name of the counter. symbol_error and "
        "port_rcv_errors: a bad cable or transceiver; port_xmit_discards: sent nowhere because "
        "the link was down or the fabric full.",
        "ports/N/counters/*",
    ),
    MetricSpec(
        "nic_link_downed_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Times the link failed to recover and went down (link_downed). Outside of reboots and "
        "maintenance: a bad cable, transceiver or switch port.",
        "ports/N/counters/link_downed",
    ),
    MetricSpec(
        "nic_link_recoveries_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Times the link recovered by itself after errors (link_error_recovery): traffic stood "
        "still meanwhile, and a link that does so often will fail.",
        "ports/N/counters/link_error_recovery",
    ),
    MetricSpec(
        "nic_rdma_errors_total",
        "counter",
        "1",
        _TYPED_LABELS,
        "RDMA transport errors and retries; type is the kernel's name of the counter. "
        "local_ack_timeout_err: the peer did not answer; packet_seq_err: packets were lost; "
        "out_of_buffer: this node posted too few receive buffers.",
        "ports/N/hw_counters/*",
    ),
)

_PORT_ERRORS = (
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
# Those of 8 ports of mlx5. Beside what the collector ``nic`` holds, and within the 1,024
# descriptors that a service often has.
_OPEN_FILES = 256

COUNTERS: tuple[PortCounter, ...] = (
    PortCounter("nic_link_downed_total", ("counters/link_downed",)),
    PortCounter("nic_link_recoveries_total", ("counters/link_error_recovery",)),
    *(
        PortCounter("nic_port_errors_total", (f"counters/{kind}",), labels=(kind,))
        for kind in _PORT_ERRORS
    ),
    *(
        PortCounter("nic_rdma_errors_total", (f"hw_counters/{kind}",), labels=(kind,))
        for kind in RDMA_ERRORS
    ),
)


@register(
    "nic_errors",
    "RDMA NIC link, port and transport error counters (sysfs).",
    interval_seconds=10,
    topic="NIC and RDMA",
    metrics=SPECS,
)
class NicErrorsCollector:
    """Reads every port; a counter that cannot be read is left out alone."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        root, monotonic = sources.paths.sysfs, sources.monotonic
        self._ports = RdmaPorts(Sysfs(root, monotonic=monotonic), config.nic.exclude, monotonic)
        self._sysfs = Sysfs(root, monotonic=monotonic, keep_open=_OPEN_FILES)
        self._counters = PortCounters(self._sysfs, COUNTERS)
        self._known: object = None

    def collect(self) -> Iterator[Family]:
        """Yield the families of NIC errors.

        Raises
        ------
        NoData
            If the node has no RDMA device.
        PartialData
            If it has more than 128 ports, or some values cannot be read.
        """
        ports = self._ports.listed()
        if not ports:
            raise NoData(f"There is no RDMA device in {str(self._sysfs.root / RDMA_ROOT)!r}.")
        if ports is not self._known:
            self._known = ports
            self._sysfs.keep_only(self._counters.paths)
        yield from self._counters.read(ports)
        if self._ports.found > MAX_PORTS:
            raise PartialData(f"Only {MAX_PORTS} of {self._ports.found} ports are read.")
        self._sysfs.end()
