"""Flow control, PHY and PCIe stalls of RDMA ports, from the statistics of their network driver."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import NoData, PartialData, register
from peerwatch_exporter.sources.ethtool import SelectedStatistics, StatisticsChangedError
from peerwatch_exporter.sources.rdma import port_interface, rdma_ports
from peerwatch_exporter.sources.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_exporter.catalog import Family
    from peerwatch_exporter.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_PRIORITIES = 8
_MICROSECONDS = 1_000_000
# A node may have hundreds of RDMA devices that are virtual functions; the page must stay bounded.
_MAX_INTERFACES = 128
_ABSENT = (errno.EOPNOTSUPP, errno.ENODEV)

_DIRECTIONS = {"rx": "receive", "tx": "transmit"}
_DISCARDS = {
    "buf_discard": "host_buffer",
    "cong_discard": "host_congestion",
    "discards": "port_buffer",
}


@dataclass(frozen=True, slots=True)
class Series:
    """What one statistic becomes: a metric, its labels after device and port, and its unit."""

    metric: str
    labels: tuple[str, ...] = ()
    divisor: int = 1


def _flow_control() -> Mapping[str, Series]:
    """Return the pause statistics: of the whole link, and of each priority."""
    table = {}
    for word, direction in _DIRECTIONS.items():
        scopes: list[tuple[str, str, tuple[str, ...]]] = [
            ("global", "nic_global_pause", (direction,))
        ]
        scopes += [
            (f"prio{number}", "nic_pfc_pause", (direction, str(number)))
            for number in range(_PRIORITIES)
        ]
        for scope, metric, labels in scopes:
            base = f"{word}_{scope}_pause"
            table[base] = Series(f"{metric}_frames_total", labels)
            table[f"{base}_duration"] = Series(f"{metric}_seconds_total", labels, _MICROSECONDS)
            table[f"{base}_transition"] = Series(f"{metric}_transitions_total", labels)
    for severity in ("warning", "error"):
        name = f"tx_pause_storm_{severity}_events"
        table[name] = Series("nic_pause_storm_events_total", (severity,))
    return table


def _buffers() -> Mapping[str, Series]:
    """Return what was dropped or marked on the way in."""
    table = {"rx_discards_phy": Series("nic_receive_discards_total")}
    for number in range(_PRIORITIES):
        name = f"rx_prio{number}"
        table[f"{name}_marked"] = Series("nic_priority_ecn_marked_total", (str(number),))
        for ending, reason in _DISCARDS.items():
            labels = (str(number), reason)
            table[f"{name}_{ending}"] = Series("nic_priority_discards_total", labels)
    return table


# An allow-list, by the names of the mlx5 driver, which has thousands more: each is a series.
STATISTICS: Mapping[str, Series] = {
    **_flow_control(),
    **_buffers(),
    "outbound_pci_stalled_rd_events": Series("nic_pcie_stalled_seconds_total", ("read",)),
    "outbound_pci_stalled_wr_events": Series("nic_pcie_stalled_seconds_total", ("write",)),
    "rx_bits_phy": Series("nic_phy_received_bits_total"),
    "rx_corrected_bits_phy": Series("nic_phy_corrected_bits_total"),
    "rx_pcs_symbol_err_phy": Series("nic_phy_symbol_errors_total"),
}


@register("ethtool", "PFC per priority, discards, ECN marks, PHY and PCIe stalls of RDMA ports.")
class EthtoolCollector:
    """Reads the interface of every RDMA port, and those that the settings name besides."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._extra = config.ethtool.interfaces
        self._sysfs = Sysfs(sources.paths.sysfs)
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
        wanted = self._interfaces()
        readings, errors = self._read_all({name for name, _ in wanted[:_MAX_INTERFACES]})
        if not readings and not errors:
            raise NoData("No RDMA port has a network interface with driver statistics.")
        if not readings:
            raise next(iter(errors.values()))
        yield from _families(wanted[:_MAX_INTERFACES], readings)
        if len(wanted) > _MAX_INTERFACES:
            raise PartialData(f"Only {_MAX_INTERFACES} of {len(wanted)} interfaces are read.")
        for name, error in errors.items():
            raise PartialData(f"The statistics of {name!r} cannot be read.") from error

    def _interfaces(self) -> list[tuple[str, tuple[str, str]]]:
        """Return (interface, labels device and port); an interface of no port has its own name."""
        found = []
        for device, port in rdma_ports(self._sysfs):
            name = port_interface(self._sysfs, device, port)
            if name:
                found.append((name, (device, port)))
        known = {name for name, _ in found}
        extra = [name for name in dict.fromkeys(self._extra) if name not in known]
        return [(name, (name, "")) for name in extra] + found

    def _read_all(
        self, names: Iterable[str]
    ) -> tuple[Mapping[str, Sequence[tuple[Series, int]]], Mapping[str, Exception]]:
        """Return what each interface says, and what went wrong, by interface."""
        readings = {}
        errors: dict[str, Exception] = {}
        for name in sorted(names):
            try:
                readings[name] = self._statistics.read(name)
            except StatisticsChangedError as error:
                errors[name] = error
            except OSError as error:
                if error.errno not in _ABSENT:
                    errors[name] = error
        return readings, errors


def _families(
    interfaces: Iterable[tuple[str, tuple[str, str]]],
    readings: Mapping[str, Sequence[tuple[Series, int]]],
) -> Iterable[Family]:
    families: dict[str, Family] = {}
    for name, port in interfaces:
        for series, value in readings.get(name, ()):
            result = families.get(series.metric)
            if result is None:
                result = families[series.metric] = family(series.metric)
            result.add_metric([*port, *series.labels], value / series.divisor)
    return families.values()
