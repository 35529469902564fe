"""Reads the same files of every RDMA port again and again, with their labels made beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.sources.host.sysfs import Sysfs
    from peerwatch_exporter.sources.nic.rdma import RdmaPort


# What a driver answers for a counter that its firmware does not keep (ionic_v1_stat_val). No
# counter comes this far by counting.
_INVALID = 2**64 - 1

# Metric, label values, file below sysfs, and the factor of its value.
_Entry = tuple[str, tuple[str, ...], str, int]


@dataclass(frozen=True, slots=True)
class PortCounter:
    """One value of a port.

    Parameters
    ----------
    metric
        What it is published as.
    files
        Where it may stand below the port; the first file that a port has counts.
    factors
        What the value of each file is multiplied by; 1 for files beyond the end.
    labels
        Label values after device and port.
    """

    metric: str
    files: tuple[str, ...]
    factors: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()


class PortCounters:
    """Reads counters of ports, and only files that were there when the ports were listed.

    Parameters
    ----------
    sysfs
        Where they are read.
    counters
        What is read of each port.

    Attributes
    ----------
    paths
        The files that are read, below sysfs.
    """

    def __init__(self, sysfs: Sysfs, counters: Sequence[PortCounter]) -> None:
        self._sysfs = sysfs
        self._counters = counters
        self._ports: Sequence[RdmaPort] | None = None
        self._directories = sorted(
            {file.partition("/")[0] for counter in counters for file in counter.files}
        )
        self._known: dict[RdmaPort, tuple[list[list[str]], tuple[_Entry, ...]]] = {}
        self._plan: list[_Entry] = []
        self.paths: Sequence[str] = ()

    def read(self, ports: Sequence[RdmaPort]) -> Iterable[Family]:
        """Return the families of the ports' counters; one that cannot be read is left out alone.

        Parameters
        ----------
        ports
            The same object as before if the ports are the same.
        """
        if ports is not self._ports:
            self._plan = [entry for port in ports for entry in self._entries(port)]
            self._known = {port: self._known[port] for port in ports}
            self._ports = ports
            self.paths = [path for _, _, path, _ in self._plan]
        families = {counter.metric: family(counter.metric) for counter in self._counters}
        values = self._sysfs.integers(self.paths)
        for (metric, labels, _, factor), value in zip(self._plan, values, strict=True):
            if value is not None and value != _INVALID:
                families[metric].rows.append((labels, value * factor))
        return families.values()

    def _entries(self, port: RdmaPort) -> Sequence[_Entry]:
        """Return what is read of a port; the same object while it has the same files."""
        names = [self._sysfs.names(f"{port.path}/{directory}") for directory in self._directories]
        known = self._known.get(port)
        if known is None or known[0] != names:
            known = self._known[port] = names, tuple(self._chosen(port, names))
        return known[1]

    def _chosen(self, port: RdmaPort, names: Sequence[Sequence[str]]) -> Iterable[_Entry]:
        present = {
            f"{directory}/{name}"
            for directory, found in zip(self._directories, names, strict=True)
            for name in found
        }
        for counter in self._counters:
            for at, file in enumerate(counter.files):
                if file in present:
                    labels = (*port.labels, *counter.labels)
                    factor = counter.factors[at] if at < len(counter.factors) else 1
                    yield counter.metric, labels, f"{port.path}/{file}", factor
                    break
