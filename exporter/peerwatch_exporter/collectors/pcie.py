"""PCIe links and errors of GPUs, NICs, NVSwitches and of every bridge above them, from sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.host.pci import MAX_FUNCTIONS, PCI_DEVICES, PciTree
from peerwatch_exporter.sources.host.pci_link import PciLinks
from peerwatch_exporter.sources.host.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_common.metrics.spec import Family
    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.pci import PciFunction
    from peerwatch_exporter.sources.host.pci_link import PciLink

_LINK_VALUES = {
    "pcie_link_speed_transfers_per_second": "speed",
    "pcie_link_speed_max_transfers_per_second": "speed_max",
    "pcie_link_width_lanes": "width",
    "pcie_link_width_lanes_max": "width_max",
}


@register(
    "pcie",
    "PCIe links and AER errors of GPUs, NICs, NVSwitches and the bridges above them (sysfs).",
    interval_seconds=10,
)
class PcieCollector:
    """Reads every function of interest; one that is gone costs itself and stays visible."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        # A refused link value is a sign of a lost function and asked for again at once.
        self._sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic, rest_seconds=0)
        self._tree = PciTree(self._sysfs)
        self._links = PciLinks(self._sysfs)
        self._seen: dict[str, PciFunction] = {}

    def collect(self) -> Iterable[Family]:
        """Return the PCIe families.

        Raises
        ------
        NoData
            If the node has and had neither a GPU, a NIC nor an NVSwitch on PCIe.
        """
        functions = self._tree.functions()
        for bdf, function in functions.items():
            if bdf in self._seen or len(self._seen) < 2 * MAX_FUNCTIONS:
                self._seen[bdf] = function
        if not self._seen:
            raise NoData(f"No GPU or NIC is in {str(self._sysfs.root / PCI_DEVICES)!r}.")
        links = {bdf: self._links.link(bdf) for bdf in functions}
        self._links.forget(set(functions))
        return [
            *_facts(self._seen.values(), links),
            *_link_families(links),
            self._errors(functions),
        ]

    def _errors(self, bdfs: Iterable[str]) -> Family:
        errors = family("pcie_aer_errors_total")
        for bdf in bdfs:
            for severity, kind, count in self._links.errors(bdf):
                errors.rows.append(((bdf, severity, kind), count))
        return errors


def _facts(functions: Iterable[PciFunction], links: dict[str, PciLink]) -> Iterable[Family]:
    info = family("pcie_device_info")
    present = family("pcie_device_present")
    for one in functions:
        labels = (one.bdf, one.kind, one.parent, one.vendor, one.device_id, one.numa_node)
        info.add_metric(labels, 1)
        link = links.get(one.bdf)
        present.add_metric([one.bdf], link is not None and link.answers)
    return info, present


def _link_families(links: dict[str, PciLink]) -> Iterable[Family]:
    for name, attribute in _LINK_VALUES.items():
        values = family(name)
        for bdf, link in links.items():
            value = getattr(link, attribute)
            if value is not None:
                values.add_metric([bdf], value)
        yield values
