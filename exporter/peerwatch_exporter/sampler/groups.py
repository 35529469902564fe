"""Which counters the node has, and how each group of them is read.

Counters are read at the rate at which they can change: those below ``counters/`` at every tick;
those below ``hw_counters/`` once per "lifespan", for which the kernel repeats what it knew;
driver statistics, which come only all at once, as rarely as their cost demands.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from peerwatch_exporter.catalog.sampled_counters import COUNTERS
from peerwatch_exporter.sampler.files import CounterFiles
from peerwatch_exporter.sampler.layout import SampledGroup, SampledSeries
from peerwatch_exporter.sampler.ring import MISSING
from peerwatch_exporter.sources.nic.drivers import STATISTICS
from peerwatch_exporter.sources.nic.ethtool import SelectedStatistics, StatisticsChangedError
from peerwatch_exporter.sources.nic.rdma import RDMA_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from peerwatch_exporter.catalog.sampled_counters import Counter
    from peerwatch_exporter.sampler.settings import SamplerSettings
    from peerwatch_exporter.sources.host.sysfs import Sysfs
    from peerwatch_exporter.sources.nic.ethtool import EthtoolReader
    from peerwatch_exporter.sources.nic.rdma import RdmaPort, RdmaPorts

# Statistics of the driver are not read more often, however cheap they are: as RDMA counters.
_ETHTOOL_SECONDS = 0.01
_DEFAULT_LIFESPAN_SECONDS = 0.01  # RDMA_HW_STATS_DEFAULT_LIFESPAN of rdma/ib_verbs.h
# Of the CPU time that the sampler may use, and of all time, that driver statistics may take.
# Chosen: files have the other half, and a driver that is asked holds the lock of all interfaces.
_ETHTOOL_CPU_SHARE = 0.5
_ETHTOOL_TIME_SHARE = 0.25


class CounterReader(Protocol):
    """Reads the counters of one group."""

    group: SampledGroup

    @property
    def interval_seconds(self) -> float:
        """The time between two readings that the counters are worth."""

    @property
    def missing(self) -> int:
        """How many of its counters cannot be read now."""

    def read(self, now: float) -> list[int]:
        """Return a value per series, ``MISSING`` where there is none."""

    def refresh(self, now: float) -> None:
        """Look again for what was missing; called once a second."""


class FileReader:
    """Counters that are files of sysfs."""

    def __init__(self, group: SampledGroup, sysfs: Sysfs, retry_seconds: float) -> None:
        self.group = group
        self.interval_seconds = group.interval_seconds
        paths = [
            f"{sysfs.root}/{RDMA_ROOT}/{series.device}/ports/{series.port}"
            f"/{series.counter.source}/{series.counter.file}"
            for series in group.series
        ]
        self._files = CounterFiles(paths, retry_seconds)

    @property
    def missing(self) -> int:
        """How many files cannot be read now."""
        return self._files.missing

    def read(self, now: float) -> list[int]:
        """Return a value per series."""
        return self._files.read(now)

    def refresh(self, now: float) -> None:
        """Open what was missing, if it is due."""
        self._files.refresh(now)


class PauseReader:
    """Pause frames of one port, summed over its priorities, from its driver's statistics.

    A reading makes the driver gather thousands of statistics, so its cost sets its rate.

    Parameters
    ----------
    group
        One or both directions of the port.
    interface
        Its network interface.
    reader
        Where statistics come from.
    ports
        How many ports share the time.
    settings
        What the process may cost, and how soon a failure is tried again.
    """

    def __init__(
        self,
        group: SampledGroup,
        interface: str,
        reader: EthtoolReader,
        ports: int,
        settings: SamplerSettings,
    ) -> None:
        self.group = group
        self.interval_seconds = group.interval_seconds
        self.missing = 0
        self._interface = interface
        self._statistics = SelectedStatistics(reader, _PAUSES.get, time.monotonic)
        self._ports = ports
        self._settings = settings
        self._retry_at = 0.0

    def read(self, now: float) -> list[int]:
        """Return pause frames by direction; after a failure, nothing for a while."""
        if now < self._retry_at:
            return [MISSING] * len(self.group.series)
        cpu, wall = time.thread_time(), time.monotonic()
        try:
            values = self._sums()
        except (OSError, StatisticsChangedError):
            self._retry_at = now + self._settings.retry_seconds
            values = [MISSING] * len(self.group.series)
        self.missing = values.count(MISSING)
        self._source(time.thread_time() - cpu, time.monotonic() - wall)
        return values

    def refresh(self, now: float) -> None:
        """Do nothing: ``read`` tries again by itself."""

    def _sums(self) -> list[int]:
        found = self._statistics.read(self._interface)
        sums: dict[str, int] = {}
        for (word, _), value in found:
            sums[word] = sums.get(word, 0) + value
        return [sums.get(series.counter.file, MISSING) for series in self.group.series]

    def _source(self, cpu: float, wall: float) -> None:
        wanted = max(
            self.group.interval_seconds,
            cpu * self._ports / (_ETHTOOL_CPU_SHARE * self._settings.max_cpu_ratio),
            wall * self._ports / _ETHTOOL_TIME_SHARE,
        )
        # One slow reading among many quick ones says little.
        self.interval_seconds += (wanted - self.interval_seconds) / 8


_WORDS = {"receive": "rx", "transmit": "tx"}
# The names of all drivers for the pause frames of a priority, with direction and priority.
_PAUSES = {
    name: (_WORDS[statistic.labels[0]], statistic.labels[1])
    for name, statistic in STATISTICS.items()
    if statistic.metric == "nic_pfc_pause_frames_total"
}


def sampled_ports(ports: RdmaPorts, devices: Sequence[str]) -> tuple[RdmaPort, ...]:
    """Return the RDMA ports to read: those of the given devices, or all."""
    return tuple(port for port in ports.listed() if not devices or port.device in devices)


def groups_of(
    sysfs: Sysfs, ports: Sequence[RdmaPort], settings: SamplerSettings
) -> Iterator[SampledGroup]:
    """Yield the groups of counters that these ports can have; the fastest one first."""
    interval = settings.interval_seconds
    wanted = [COUNTERS[name] for name in settings.counters]
    fast = [counter for counter in wanted if counter.source == "counters"]
    if ports and fast:
        rates = {port: _line_rate(sysfs, port) for port in ports}
        yield SampledGroup(
            interval,
            tuple(
                SampledSeries(counter, *port.labels, rates[port] if counter.link else None)
                for port in ports
                for counter in fast
            ),
        )
    for port in ports:
        cached = [counter for counter in wanted if counter.source == "hw_counters"]
        if cached and sysfs.exists(f"{port.path}/hw_counters"):
            yield _port_group(port, cached, max(interval, _lifespan(sysfs, port)))
        driver = [counter for counter in wanted if counter.source == "ethtool"]
        if driver and port.interface:
            yield _port_group(port, driver, max(interval, _ETHTOOL_SECONDS))


def readers_of(
    groups: Sequence[SampledGroup],
    ports: Sequence[RdmaPort],
    sysfs: Sysfs,
    ethtool: EthtoolReader,
    settings: SamplerSettings,
) -> list[CounterReader]:
    """Return how each group is read."""
    interfaces = {port.labels: port.interface for port in ports}
    paused = sum(group.series[0].counter.source == "ethtool" for group in groups)
    readers: list[CounterReader] = []
    for group in groups:
        first = group.series[0]
        if first.counter.source == "ethtool":
            interface = interfaces[first.device, first.port]
            readers.append(PauseReader(group, interface, ethtool, paused, settings))
        else:
            readers.append(FileReader(group, sysfs, settings.retry_seconds))
    return readers


def _port_group(port: RdmaPort, counters: Sequence[Counter], interval: float) -> SampledGroup:
    return SampledGroup(
        interval, tuple(SampledSeries(counter, *port.labels) for counter in counters)
    )


def _line_rate(sysfs: Sysfs, port: RdmaPort) -> float | None:
    # A port that is down may say 0; nothing can be compared with no speed at all.
    return sysfs.bytes_per_second(f"{port.path}/rate") or None


def _lifespan(sysfs: Sysfs, port: RdmaPort) -> float:
    milliseconds = sysfs.integer(f"{port.path}/hw_counters/lifespan")
    return _DEFAULT_LIFESPAN_SECONDS if milliseconds is None else milliseconds / 1000
