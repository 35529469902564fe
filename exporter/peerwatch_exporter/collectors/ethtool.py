"""Flow control, PHY and PCIe stalls of RDMA ports, from the statistics of their network driver."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.ethtool import (
    SelectedStatistics,
    StatisticsChangedError,
    picker,
)
from peerwatch_exporter.sources.nic.rdma import RdmaPorts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_PORT_LABELS = ("device", "port")
_DIRECTION_LABELS = (*_PORT_LABELS, "direction")
_PRIORITY_LABELS = (*_DIRECTION_LABELS, "priority")
_PAUSE_MEANING = (
    "Direction receive: the peer stopped this port, check the fabric. Direction transmit: this "
    "port stopped its peer, check the NIC's buffers, PCIe and the host."
)

SPECS = needing(
    "mlx5",
    MetricSpec(
        "nic_pfc_pause_frames_total",
        "counter",
        "1",
        _PRIORITY_LABELS,
        f"Pause frames of one priority. {_PAUSE_MEANING} Counted where PFC is on.",
        "ethtool -S {rx,tx}_prioN_pause",
    ),
    MetricSpec(
        "nic_pfc_pause_seconds_total",
        "counter",
        "seconds",
        _PRIORITY_LABELS,
        f"Time for which a priority stood still. {_PAUSE_MEANING}",
        "ethtool -S {rx,tx}_prioN_pause_duration (microseconds)",
    ),
    MetricSpec(
        "nic_pfc_pause_transitions_total",
        "counter",
        "1",
        _PRIORITY_LABELS,
        "Times a stopped priority was let go again; few long stops and many short ones differ "
        "here. mlx5 counts direction receive only.",
        "ethtool -S rx_prioN_pause_transition",
    ),
    MetricSpec(
        "nic_global_pause_frames_total",
        "counter",
        "1",
        _DIRECTION_LABELS,
        f"Pause frames that stop the whole link. {_PAUSE_MEANING} On a lossless fabric PFC stands "
        "in its place: a rise here is a port with the wrong setting.",
        "ethtool -S {rx,tx}_global_pause",
    ),
    MetricSpec(
        "nic_global_pause_seconds_total",
        "counter",
        "seconds",
        _DIRECTION_LABELS,
        f"Time for which the whole link stood still. {_PAUSE_MEANING}",
        "ethtool -S {rx,tx}_global_pause_duration (microseconds)",
    ),
    MetricSpec(
        "nic_global_pause_transitions_total",
        "counter",
        "1",
        _DIRECTION_LABELS,
        "Times the stopped link was let go again. mlx5 counts direction receive only.",
        "ethtool -S rx_global_pause_transition",
    ),
    MetricSpec(
        "nic_pause_storm_events_total",
        "counter",
        "1",
        ("device", "port", "severity"),
        "Times this port stopped its peer for too long. Severity warning: the host drains the NIC "
        "too slowly. Severity error: it sends no more pause frames and loses packets instead.",
        "ethtool -S tx_pause_storm_{warning,error}_events",
    ),
    MetricSpec(
        "nic_receive_discards_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets dropped on arrival for want of buffer: the NIC cannot get rid of what the fabric "
        "brings (rx_discards_phy).",
        "ethtool -S rx_discards_phy",
    ),
    MetricSpec(
        "nic_receive_out_of_buffer_packets_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets dropped because no receive buffer was posted: the host's software is too slow "
        "(rx_out_of_buffer).",
        "ethtool -S rx_out_of_buffer",
    ),
    MetricSpec(
        "nic_priority_discards_total",
        "counter",
        "packets",
        ("device", "port", "priority", "reason"),
        "Packets of a priority dropped on arrival. Reason port_buffer: no buffer on the port; "
        "host_buffer: none for this host; host_congestion: the host is too slow.",
        "ethtool -S rx_prioN_{discards,buf_discard,cong_discard}",
    ),
    MetricSpec(
        "nic_priority_ecn_marked_total",
        "counter",
        "packets",
        ("device", "port", "priority"),
        "Packets that this NIC itself marked as congested, because its host is too slow. Marks of "
        "switches are in nic_ecn_marked_packets_total.",
        "ethtool -S rx_prioN_marked",
    ),
    MetricSpec(
        "nic_pcie_stalled_seconds_total",
        "counter",
        "seconds",
        ("device", "port", "operation"),
        "Seconds in which the NIC waited for PCIe credits for more than 30 % of the time, by "
        "operation read or write: the host side is the bottleneck, and transmit pauses follow.",
        "ethtool -S outbound_pci_stalled_{rd,wr}_events",
    ),
    MetricSpec(
        "nic_pcie_buffer_overflow_packets_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Packets dropped because the buffer towards PCIe was full: the host side is the "
        "bottleneck.",
        "ethtool -S outbound_pci_buffer_overflow",
    ),
    MetricSpec(
        "nic_pcie_signal_errors_total",
        "counter",
        "1",
        _DIRECTION_LABELS,
        "Errors of the PCIe signal that made the NIC's link recover, by direction: a bad slot, "
        "riser or contact.",
        "ethtool -S {rx,tx}_pci_signal_integrity",
    ),
    MetricSpec(
        "nic_phy_link_down_events_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Times the link was lost, as the PHY counted it; it sees flaps too short for the state.",
        "ethtool -S link_down_events_phy",
    ),
    MetricSpec(
        "nic_phy_crc_errors_total",
        "counter",
        "packets",
        _PORT_LABELS,
        "Frames received with a wrong checksum: cable, transceiver or the peer's port.",
        "ethtool -S rx_crc_errors_phy",
    ),
    MetricSpec(
        "nic_phy_received_bytes_total",
        "counter",
        "bytes",
        _PORT_LABELS,
        "Bytes that could have been received (rx_bits_phy / 8): what bit errors, times 8, and "
        "symbol errors are a share of.",
        "ethtool -S rx_bits_phy",
    ),
    MetricSpec(
        "nic_phy_corrected_bit_errors_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Bits that error correction repaired. Some are normal; a port with many more than its "
        "peers has a dirty or loose cable or transceiver.",
        "ethtool -S rx_corrected_bits_phy",
    ),
    MetricSpec(
        "nic_phy_symbol_errors_total",
        "counter",
        "1",
        _PORT_LABELS,
        "Symbols that error correction could not repair: traffic is lost, replace the cable or "
        "transceiver.",
        "ethtool -S rx_pcs_symbol_err_phy",
    ),
)

_PRIORITIES = 8
_MICROSECONDS = 1_000_000
_MAX_INTERFACES = 128  # those of 128 RDMA ports, the others that the settings name included
_ABSENT = (errno.EOPNOTSUPP, errno.ENODEV)
_DIRECTIONS = {"rx": "receive", "tx": "transmit"}
_DISCARDS = {
    "buf_discard": "host_buffer",
    "cong_discard": "host_congestion",
    "discards": "port_buffer",
}


@dataclass(frozen=True, slots=True)
class Statistic:
    """What one statistic becomes: a metric, its labels after device and port, and its unit."""

    metric: str
    labels: tuple[str, ...] = ()
    divisor: int = 1


def _flow_control() -> Mapping[str, Statistic]:
    """Return the pause statistics: of the whole link, and of each priority."""
    table = {}
    for word, direction in _DIRECTIONS.items():
        scopes: dict[str, tuple[str, ...]] = {"global": (direction,)}
        scopes |= {f"prio{n}": (direction, str(n)) for n in range(_PRIORITIES)}
        for scope, labels in scopes.items():
            metric = "nic_global_pause" if scope == "global" else "nic_pfc_pause"
            base = f"{word}_{scope}_pause"
            table[base] = Statistic(f"{metric}_frames_total", labels)
            table[f"{base}_duration"] = Statistic(f"{metric}_seconds_total", labels, _MICROSECONDS)
            table[f"{base}_transition"] = Statistic(f"{metric}_transitions_total", labels)
    for severity in ("warning", "error"):
        statistic = Statistic("nic_pause_storm_events_total", (severity,))
        table[f"tx_pause_storm_{severity}_events"] = statistic
    return table


def _buffers() -> Mapping[str, Statistic]:
    """Return what was dropped or marked on the way in."""
    table = {
        "rx_discards_phy": Statistic("nic_receive_discards_total"),
        "rx_out_of_buffer": Statistic("nic_receive_out_of_buffer_packets_total"),
        "outbound_pci_buffer_overflow": Statistic("nic_pcie_buffer_overflow_packets_total"),
    }
    for number in range(_PRIORITIES):
        name = f"rx_prio{number}"
        table[f"{name}_marked"] = Statistic("nic_priority_ecn_marked_total", (str(number),))
        for ending, reason in _DISCARDS.items():
            labels = (str(number), reason)
            table[f"{name}_{ending}"] = Statistic("nic_priority_discards_total", labels)
    return table


# An allow-list, by the names of the mlx5 driver, which has thousands more: each is a series.
STATISTICS: Mapping[str, Statistic] = {
    **_flow_control(),
    **_buffers(),
    "outbound_pci_stalled_rd_events": Statistic("nic_pcie_stalled_seconds_total", ("read",)),
    "outbound_pci_stalled_wr_events": Statistic("nic_pcie_stalled_seconds_total", ("write",)),
    "rx_pci_signal_integrity": Statistic("nic_pcie_signal_errors_total", ("receive",)),
    "tx_pci_signal_integrity": Statistic("nic_pcie_signal_errors_total", ("transmit",)),
    "link_down_events_phy": Statistic("nic_phy_link_down_events_total"),
    "rx_crc_errors_phy": Statistic("nic_phy_crc_errors_total"),
    "rx_bits_phy": Statistic("nic_phy_received_bytes_total", divisor=8),
    "rx_corrected_bits_phy": Statistic("nic_phy_corrected_bit_errors_total"),
    "rx_pcs_symbol_err_phy": Statistic("nic_phy_symbol_errors_total"),
}


# Keys and values of one interface.
_Reading: TypeAlias = "tuple[tuple[Statistic, ...], list[int]]"
_Labels: TypeAlias = tuple[str, ...]
# Labels device and port of each interface, and what its statistics stand for.
_Layout: TypeAlias = "list[tuple[tuple[str, str], tuple[Statistic, ...]]]"


class _Column:
    """One metric of all interfaces: its series, and where the value of each stands."""

    def __init__(self, metric: str, divisor: int, series: Sequence[tuple[int, _Labels]]) -> None:
        self._metric = metric
        self._divisor = divisor
        self._labels = [labels for _, labels in series]
        self._pick = picker([place for place, _ in series])
        self._found: tuple[int, ...] | None = None
        self._family = family(metric)

    def family(self, values: Sequence[int]) -> Family:
        """Return the metric's samples, given the values of all interfaces one after another.

        As long as no value changes, it is the same object.
        """
        found = self._pick(values)
        if found != self._found:
            self._found = found
            self._family = family(self._metric)
            scaled: Iterable[float] = found
            if self._divisor != 1:
                scaled = [value / self._divisor for value in found]
            self._family.rows = list(zip(self._labels, scaled, strict=True))
        return self._family


@register(
    "ethtool",
    "PFC per priority, discards, ECN marks, PHY and PCIe stalls of RDMA ports.",
    topic="NIC flow control, PHY and PCIe",
    metrics=SPECS,
)
class EthtoolCollector:
    """Reads the interface of every RDMA port, and those that the settings name besides."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._extra = config.ethtool.interfaces
        sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic)
        self._ports = RdmaPorts(sysfs, config.nic.exclude, sources.monotonic)
        self._listed: object = None
        self._selected: list[tuple[str, tuple[str, str]]] = []
        self._layout: _Layout = []
        self._columns: list[_Column] = []
        self._statistics = SelectedStatistics(sources.ethtool, STATISTICS.get, sources.monotonic)

    def collect(self) -> Iterable[Family]:
        """Return the families; an interface without statistics or in no sight is left out.

        Raises
        ------
        NoData
            If no wanted interface has statistics.
        PartialData
            If an interface failed for another reason, or there are too many of them.
        """
        selected = self._interfaces()
        readings, errors = self._read_all({name for name, _ in selected[:_MAX_INTERFACES]})
        if not readings and not errors:
            raise NoData("No RDMA port has a network interface with driver statistics.")
        if not readings:
            raise next(iter(errors.values()))
        yield from self._families(selected[:_MAX_INTERFACES], readings)
        found = max(len(selected), self._ports.found)
        if found > _MAX_INTERFACES:
            raise PartialData(f"Only {_MAX_INTERFACES} of {found} interfaces are read.")
        for name, error in errors.items():
            raise PartialData(f"The statistics of {name!r} cannot be read.") from error

    def _interfaces(self) -> list[tuple[str, tuple[str, str]]]:
        """Return (interface, labels device and port); an interface of no port has its own name."""
        ports = self._ports.listed()
        if ports is not self._listed:
            self._listed = ports
            found = [(port.interface, port.labels) for port in ports if port.interface]
            known = {name for name, _ in found}
            extra = [name for name in dict.fromkeys(self._extra) if name not in known]
            self._selected = [(name, (name, "")) for name in extra] + found
        return self._selected

    def _read_all(
        self, names: Iterable[str]
    ) -> tuple[Mapping[str, _Reading], Mapping[str, Exception]]:
        """Return what each interface says, and what went wrong, by interface."""
        readings = {}
        errors: dict[str, Exception] = {}
        for name in sorted(names):
            try:
                readings[name] = self._statistics.columns(name)
            except StatisticsChangedError as error:
                errors[name] = error
            except OSError as error:
                if error.errno not in _ABSENT:
                    errors[name] = error
        return readings, errors

    def _families(
        self,
        interfaces: Iterable[tuple[str, tuple[str, str]]],
        readings: Mapping[str, _Reading],
    ) -> Iterable[Family]:
        found = [(port, *readings[name]) for name, port in interfaces if name in readings]
        layout = [(port, keys) for port, keys, _ in found]
        # Labels and places are made once for all: there are hundreds of series.
        if layout != self._layout:
            self._layout, self._columns = layout, _columns(layout)
        values = [value for _, _, interface in found for value in interface]
        return [column.family(values) for column in self._columns]


def _columns(layout: _Layout) -> list[_Column]:
    columns: dict[tuple[str, int], list[tuple[int, _Labels]]] = {
        (series.metric, series.divisor): [] for series in STATISTICS.values()
    }
    series_of_all = [(port, series) for port, keys in layout for series in keys]
    for place, (port, series) in enumerate(series_of_all):
        columns[series.metric, series.divisor].append((place, (*port, *series.labels)))
    return [_Column(*column, found) for column, found in columns.items()]
