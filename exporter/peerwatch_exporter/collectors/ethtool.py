"""Flow control, PHY and PCIe stalls of RDMA ports, from the statistics of their network driver."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeAlias

from peerwatch_exporter.catalog import CATALOG, family
from peerwatch_exporter.catalog.nic_statistics import SLOW_SECONDS, SPECS
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.host.rarely import Rarely
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.nic.drivers import STATISTICS
from peerwatch_exporter.sources.nic.ethtool import (
    SelectedStatistics,
    StatisticsChangedError,
    picker,
)
from peerwatch_exporter.sources.nic.rdma import RdmaPorts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.nic.driver_table import Statistic

_MAX_INTERFACES = 128  # those of 128 RDMA ports, the others that the settings name included
_ABSENT = (errno.EOPNOTSUPP, errno.ENODEV)


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
        self.is_slow = CATALOG[metric].every_seconds > 0
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
        self._slow_columns: list[_Column] = []
        self._slow: Rarely[list[Family]] = Rarely(SLOW_SECONDS, sources.monotonic, turn=2)
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
            self._layout, columns = layout, _columns(layout)
            self._columns = [column for column in columns if not column.is_slow]
            self._slow_columns = [column for column in columns if column.is_slow]
        values = [value for _, _, interface in found for value in interface]
        slow = self._slow(
            lambda: [column.family(values) for column in self._slow_columns], self._slow_columns
        )
        return [*(column.family(values) for column in self._columns), *slow]


def _columns(layout: _Layout) -> list[_Column]:
    columns: dict[tuple[str, int], list[tuple[int, _Labels]]] = {
        (series.metric, series.divisor): [] for series in STATISTICS.values()
    }
    series_of_all = [(port, series) for port, keys in layout for series in keys]
    for place, (port, series) in enumerate(series_of_all):
        columns[series.metric, series.divisor].append((place, (*port, *series.labels)))
    return [_Column(*column, found) for column, found in columns.items()]
