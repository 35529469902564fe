"""RDMA NIC ports from sysfs: bytes, packets, state, congestion control, and which GPU is near."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family, place_in
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.host.rarely import Rarely
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.drivers import rdma_files
from peerwatch_exporter.sources.nic.port_counters import PortCounter, PortCounters
from peerwatch_exporter.sources.nic.rdma import MAX_PORTS, RDMA_ROOT, GpuNeighbours, RdmaPorts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.nic.rdma import RdmaPort

_PORT_LABELS = ("device", "port")
# States have alerts that wait for a minute, and the other counters are summed up over minutes:
# three values for each scrape of 15 s.
_SLOW_SECONDS = 5

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "RDMA NIC",
        MetricSpec(
            "nic_port_info",
            "gauge",
            "1",
            ("device", "port", "link_layer", "netdev", "bdf", "fw", "board_id", "gpu"),
            "What port it is. Value is always 1; join on (node, device, port). gpu is the index "
            "of the GPU it shares a PCIe switch with, empty if there is none; where several NICs "
            "and GPUs share one, they are paired in order. All equally near GPUs are in "
            "nic_gpu_info.",
            "ports/N/{link_layer,gid_attrs/ndevs/0}, device, fw_ver, board_id",
        ),
    ),
    MetricSpec(
        "nic_gpu_info",
        "gauge",
        "1",
        ("device", "port", "gpu", "nearness"),
        "The GPUs nearest to a port by PCIe, one row for each. nearness: switch (they share a "
        "PCIe bridge), host_bridge (they meet at the CPU's host bridge), numa (the same NUMA "
        "node). Value is always 1.",
        "/sys/bus/pci/devices/<bdf> link targets, numa_node",
        hardware="RDMA NIC and GPU",
        not_drawn="joins ports to GPUs in queries by hand; nic_port_info names the nearest",
    ),
    *needing(
        "RDMA NIC",
        MetricSpec(
            "nic_port_rate_bytes_per_second",
            "gauge",
            "bytes per second",
            _PORT_LABELS,
            "Speed that the port negotiated.",
            "ports/N/rate",
            every_seconds=_SLOW_SECONDS,
        ),
        MetricSpec(
            "nic_port_state",
            "gauge",
            "1",
            _PORT_LABELS,
            "Logical state: 1 down, 2 initialising, 3 armed, 4 active, 5 active but deferred.",
            "ports/N/state",
            every_seconds=_SLOW_SECONDS,
        ),
        MetricSpec(
            "nic_port_physical_state",
            "gauge",
            "1",
            _PORT_LABELS,
            "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error "
            "recovery.",
            "ports/N/phys_state",
            every_seconds=_SLOW_SECONDS,
        ),
        MetricSpec(
            "nic_receive_bytes_total",
            "counter",
            "bytes",
            _PORT_LABELS,
            "Bytes received (port_rcv_data, 4-byte words, times 4; rx_bytes on EFA and bnxt_re).",
            "ports/N/counters/port_rcv_data, else hw_counters/rx_bytes",
        ),
        MetricSpec(
            "nic_transmit_bytes_total",
            "counter",
            "bytes",
            _PORT_LABELS,
            "Bytes sent (port_xmit_data, 4-byte words, times 4; tx_bytes on EFA and bnxt_re).",
            "ports/N/counters/port_xmit_data, else hw_counters/tx_bytes",
        ),
        MetricSpec(
            "nic_receive_packets_total",
            "counter",
            "packets",
            _PORT_LABELS,
            "Packets received (port_rcv_packets).",
            "ports/N/counters/port_rcv_packets",
            every_seconds=_SLOW_SECONDS,
        ),
        MetricSpec(
            "nic_transmit_packets_total",
            "counter",
            "packets",
            _PORT_LABELS,
            "Packets sent (port_xmit_packets).",
            "ports/N/counters/port_xmit_packets",
            every_seconds=_SLOW_SECONDS,
        ),
        MetricSpec(
            "nic_transmit_wait_ticks_total",
            "counter",
            "ticks",
            _PORT_LABELS,
            "Ticks with data to send and no credit to send it (port_xmit_wait): the fabric holds "
            "this port back.",
            "ports/N/counters/port_xmit_wait",
            every_seconds=_SLOW_SECONDS,
        ),
    ),
    MetricSpec(
        "nic_cnp_sent_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Congestion notifications sent: this node received marked packets (np_cnp_sent).",
        "ports/N/hw_counters/np_cnp_sent, or what the driver calls it",
        hardware="RoCE",
    ),
    MetricSpec(
        "nic_cnp_handled_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Congestion notifications obeyed: this node slowed its sending down (rp_cnp_handled).",
        "ports/N/hw_counters/rp_cnp_handled, or what the driver calls it",
        hardware="RoCE",
        every_seconds=_SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_cnp_ignored_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Congestion notifications received and not obeyed (rp_cnp_ignored): congestion control "
        "is off or set up differently on this node.",
        "ports/N/hw_counters/rp_cnp_ignored, or what the driver calls it",
        hardware="RoCE",
        every_seconds=_SLOW_SECONDS,
    ),
    MetricSpec(
        "nic_ecn_marked_packets_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "RoCE packets received with the congestion mark: a switch on the way here queues "
        "(np_ecn_marked_roce_packets).",
        "ports/N/hw_counters/np_ecn_marked_roce_packets, or what the driver calls it",
        hardware="RoCE",
    ),
    MetricSpec(
        "nic_out_of_sequence_packets_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets received out of sequence (out_of_sequence): some were lost on the way here, or "
        "the fabric sends them along several paths.",
        "ports/N/hw_counters/out_of_sequence, or what the driver calls it",
        hardware="RDMA NIC",
        every_seconds=_SLOW_SECONDS,
    ),
)


_PLACE = place_in(SPECS)

# InfiniBand counts data in 32-bit words, on every link layer, and drivers of long ago have 64 bits
# in counters_ext alone; what a driver counts below hw_counters/ is in bytes.
_WORDS = (4, 4)


def _counter(metric: str, *files: str, factors: tuple[int, ...] = ()) -> PortCounter:
    return PortCounter(metric, (*files, *rdma_files(metric)), factors)


# What detection compares; the rest is summed up over minutes.
COUNTERS: tuple[PortCounter, ...] = (
    _counter(
        "nic_receive_bytes_total",
        "counters/port_rcv_data",
        "counters_ext/port_rcv_data_64",
        factors=_WORDS,
    ),
    _counter(
        "nic_transmit_bytes_total",
        "counters/port_xmit_data",
        "counters_ext/port_xmit_data_64",
        factors=_WORDS,
    ),
    _counter("nic_cnp_sent_total"),
    _counter("nic_ecn_marked_packets_total"),
)
SLOW_COUNTERS: tuple[PortCounter, ...] = (
    _counter(
        "nic_receive_packets_total",
        "counters/port_rcv_packets",
        "counters_ext/port_rcv_packets_64",
    ),
    _counter(
        "nic_transmit_packets_total",
        "counters/port_xmit_packets",
        "counters_ext/port_xmit_packets_64",
    ),
    _counter("nic_transmit_wait_ticks_total", "counters/port_xmit_wait"),
    _counter("nic_cnp_handled_total"),
    _counter("nic_cnp_ignored_total"),
    _counter("nic_out_of_sequence_packets_total"),
)
_StateFiles = dict[str, list[tuple[str, tuple[str, str]]]]
_STATES = {"state": "nic_port_state", "phys_state": "nic_port_physical_state"}
# Descriptors kept open: a dozen for each port of a node with 40, of the 1,024 a service often has.
_OPEN_FILES = 512


@register(
    "nic",
    "RDMA NIC bytes, packets, link state, ECN and CNP counters (sysfs).",
    topic="NIC and RDMA",
    metrics=SPECS,
)
class NicCollector:
    """Reads every port; a counter that cannot be read is left out alone."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        root, monotonic = sources.paths.sysfs, sources.monotonic
        self._facts = Sysfs(root, monotonic=monotonic)
        self._sysfs = Sysfs(root, monotonic=monotonic, keep_open=_OPEN_FILES)
        self._ports = RdmaPorts(self._facts, config.nic.exclude, monotonic)
        self._counters = PortCounters(self._sysfs, COUNTERS)
        self._slow_counters = PortCounters(self._sysfs, SLOW_COUNTERS)
        self._slow: Rarely[Iterable[Family]] = Rarely(_SLOW_SECONDS, monotonic, turn=3)
        self._neighbours = GpuNeighbours(self._facts, sources.gpus)
        self._gpus = sources.gpus
        self._known: object = None
        self._info: list[Family] = []
        self._states: _StateFiles = {}

    def collect(self) -> Iterator[Family]:
        """Yield the NIC families.

        Raises
        ------
        NoData
            If the node has no RDMA device.
        PartialData
            If it has more than 128 ports, or some values cannot be read.
        """
        ports = self._ports.listed()
        if not ports:
            raise NoData(f"There is no RDMA device in {str(self._facts.root / RDMA_ROOT)!r}.")
        known = (id(ports), self._gpus.boards())
        if known != self._known:
            self._info = list(self._facts_of(ports))
            self._known = known
            self._states = _state_files(ports)
            states = [path for files in self._states.values() for path, _ in files]
            counters = (*self._counters.paths, *self._slow_counters.paths)
            self._sysfs.keep_only([*counters, *states])
        slow = self._slow(lambda: self._slow_families(ports), ports)
        yield from sorted((*self._info, *slow, *self._counters.read(ports)), key=_PLACE)
        if self._ports.found > MAX_PORTS:
            raise PartialData(f"Only {MAX_PORTS} of {self._ports.found} ports are read.")
        self._sysfs.end()
        self._facts.end()

    def _facts_of(self, ports: Iterable[RdmaPort]) -> Iterable[Family]:
        """Return what hardly ever changes, and is read when the ports are listed."""
        info = family("nic_port_info")
        near = family("nic_gpu_info")
        neighbours = self._neighbours.find([port.bdf for port in ports])
        for port in ports:
            device = f"{RDMA_ROOT}/{port.device}"
            gpus = neighbours.get(port.bdf)
            labels = [
                *port.labels,
                self._facts.text(f"{port.path}/link_layer") or "",
                _printable(port.interface),
                port.bdf,
                self._facts.text(f"{device}/fw_ver") or "",
                self._facts.text(f"{device}/board_id") or "",
                "" if gpus is None else gpus.own,
            ]
            info.add_metric(labels, 1)
            for gpu in () if gpus is None else gpus.gpus:
                near.add_metric([*port.labels, gpu, gpus.nearness if gpus else ""], 1)
        return info, near

    def _slow_families(self, ports: Sequence[RdmaPort]) -> Iterable[Family]:
        rate = family("nic_port_rate_bytes_per_second")
        for port in ports:
            speed = self._facts.bytes_per_second(f"{port.path}/rate")
            if speed is not None:
                rate.add_metric(port.labels, speed)
        return rate, *self._state_families(), *self._slow_counters.read(ports)

    def _state_families(self) -> Iterable[Family]:
        for name, files in self._states.items():
            states = family(name)
            values = self._sysfs.states([path for path, _ in files])
            states.rows = [
                (labels, value)
                for (_, labels), value in zip(files, values, strict=True)
                if value is not None
            ]
            yield states


def _state_files(ports: Iterable[RdmaPort]) -> _StateFiles:
    """Return the files of each metric, with the label values of each file."""
    found = [(f"{port.path}/", port.labels) for port in ports]
    return {
        name: [(base + file, labels) for base, labels in found] for file, name in _STATES.items()
    }


def _printable(name: str) -> str:
    """Return a name without the bytes that are no text: an interface may be called anything."""
    return name.encode("utf-8", "replace").decode()
