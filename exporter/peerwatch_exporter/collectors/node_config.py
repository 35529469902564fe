"""How node and ranks are set up, so that the nodes of a job can be compared (ConfigCheck of Aegis).

Of GPUs, what only their driver says is published by the collector gpu_settings, which reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.config_keys import NODE_CONFIG, RANK_CONFIG
from peerwatch_exporter.catalog.config_values import ConfigValues
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import PartialData, error_class
from peerwatch_exporter.sources.host.configuration import (
    ConfigFiles,
    read_host,
    read_time_service,
)
from peerwatch_exporter.sources.host.pci import PCI_DEVICES, PciTree
from peerwatch_exporter.sources.host.pci_config import HiddenConfigError, PciConfig, read_config
from peerwatch_exporter.sources.host.sysfs import Sysfs
from peerwatch_exporter.sources.jobs.rank_configuration import RankConfiguration
from peerwatch_exporter.sources.nic.configuration import read_ports
from peerwatch_exporter.sources.nic.rdma import RdmaPorts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.nic.rdma import RdmaPort

# Reading the configuration space wakes a function that sleeps, and firmware and scripts set it
# once: chosen, ten minutes are soon enough for a change.
_PCI_SECONDS = 600.0
_PCI_FILES = {
    "pcie_speed_max": "max_link_speed",
    "pcie_width_max": "max_link_width",
    "iommu_domain": "iommu_group/type",
}


class _Unreadable(PartialData):
    """A part could not be read; ``error_class`` begins with the part's name."""

    def __init__(self, part: str, error: Exception) -> None:
        super().__init__(f"{part}: {error}")
        self.error_class = f"{part}_{error_class(error)}"


class _ConfigHidden(PartialData):
    """Nothing else is missing than what the exporter was not given the right to."""

    error_class = "source_missing"


class _TooManyValues(PartialData):
    error_class = "config_limit"


@register(
    "node_config",
    "how node and ranks are set up: kernel, sysctls, NICs, PCIe, variables and limits of ranks",
    interval_seconds=60,
    topic="Configuration",
    metrics=(NODE_CONFIG, RANK_CONFIG),
)
class NodeConfigCollector:
    """Reads every value by itself, once a minute: one that cannot be read costs itself."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._sources = sources
        self._settings = config.node_config
        self._whole_machine = config.scope.kind == "host"
        self._sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic)
        self._tree = PciTree(self._sysfs)
        self._ports = RdmaPorts(self._sysfs, config.nic.exclude, sources.monotonic)
        self._ranks = RankConfiguration(sources.processes, sources.paths.procfs)
        self._pci: dict[str, PciConfig] = {}
        self._pci_read: float | None = None
        self._hidden: HiddenConfigError | None = None

    def follow(self, config: ExporterConfig) -> None:
        """Publish what other settings say."""
        self._settings = config.node_config

    def collect(self) -> Iterator[Family]:
        """Yield the values of the node, then those of its jobs.

        Raises
        ------
        PartialData
            At the end, if a part could not be read; its class begins with that part: ``files``,
            ``processes``, ``dcb``, ``environment``; ``source_missing`` where only PCIe is hidden;
            ``config_limit`` if there are too many values.
        """
        problems: list[tuple[str, Exception]] = []
        values = ConfigValues(self._settings.max_values)
        files = ConfigFiles(self._sources.paths)
        read_host(files, values)
        problems += [("files", error) for error in files.problems]
        self._read_system(values, problems)
        ports = self._ports.listed()
        self._read_pci(ports, values)
        refused = read_ports(self._sysfs, ports, values, self._sources.dcb)
        problems += [("dcb", error) for error in refused]
        result = family(NODE_CONFIG.name)
        result.rows += [(row, 1) for row in values.rows()]
        yield result
        jobs = self._jobs(problems)
        yield self._rank_family(jobs)
        if problems:
            raise _Unreadable(*problems[0])
        if values.left_out or any(job.left_out for job in jobs.values()):
            raise _TooManyValues(f"There are more than {self._settings.max_values} values.")
        self._sysfs.end()
        if self._hidden is not None:
            raise _ConfigHidden(str(self._hidden))

    def _read_system(self, values: ConfigValues, problems: list[tuple[str, Exception]]) -> None:
        if self._whole_machine:
            try:
                processes = self._sources.processes.snapshot()
                read_time_service((process.name for process in processes.values()), values)
            except Exception as error:  # a process that cannot be understood, whatever it is
                problems.append(("processes", error))
        ask = self._sources.queries.os_release
        if ask is not None:
            try:
                values.add("os.release", ask())
            except OSError as error:
                problems.append(("files", error))

    def _read_pci(self, ports: Iterable[RdmaPort], values: ConfigValues) -> None:
        functions = self._tree.functions()
        now = self._sources.monotonic()
        young = self._pci_read is not None and 0 <= now - self._pci_read < _PCI_SECONDS
        if not young or self._pci.keys() != functions.keys():
            self._pci_read, self._hidden = now, None
            self._pci = {bdf: self._pci_config(bdf) for bdf in functions}
        gpus = sorted(bdf for bdf, function in functions.items() if function.kind == "gpu")
        for kind, devices in (
            # By the order of their addresses, as NVML numbers them.
            ("gpu", {str(number): bdf for number, bdf in enumerate(gpus)}),
            ("nic", {port.device: port.bdf for port in ports if port.bdf in functions}),
        ):
            for aspect, file in _PCI_FILES.items():
                paths = {name: f"{PCI_DEVICES}/{bdf}/{file}" for name, bdf in devices.items()}
                texts = {name: self._sysfs.text(path) for name, path in paths.items()}
                values.add_devices(kind, aspect, texts)
            for aspect in ("max_payload_bytes", "max_read_request_bytes"):
                sizes = {name: getattr(self._pci[bdf], aspect) for name, bdf in devices.items()}
                known = {name: str(size) for name, size in sizes.items() if size is not None}
                values.add_devices(kind, f"pcie_{aspect}", known)
        bridges = [bdf for bdf, f in functions.items() if f.kind in ("bridge", "root_port")]
        values.add("pcie.acs", _redirection([self._pci[bdf].redirects for bdf in bridges]))

    def _pci_config(self, bdf: str) -> PciConfig:
        try:
            return read_config(self._sysfs, bdf)
        except HiddenConfigError as error:
            self._hidden = error
            return PciConfig()

    def _jobs(self, problems: list[tuple[str, Exception]]) -> dict[str, ConfigValues]:
        ranks = self._sources.known_ranks.all() or ()
        if not self._settings.rank_variables:
            return {}
        refused: list[Exception] = []
        jobs = self._ranks.read(ranks, self._settings.max_values, refused)
        problems += [("environment", error) for error in refused]
        return jobs

    def _rank_family(self, jobs: dict[str, ConfigValues]) -> Family:
        result = family(RANK_CONFIG.name)
        for job_id, values in jobs.items():
            result.rows += [((job_id, *row), 1) for row in values.rows()]
        return result


def _redirection(states: Iterable[bool | None]) -> str | None:
    """Return on how many of the bridges that say so peers' traffic goes by way of the root."""
    known = [state for state in states if state is not None]
    if not known:
        return None
    return f"redirects on {sum(known)} of {len(known)} bridges" if any(known) else "off"
