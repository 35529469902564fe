"""PCIe links and errors of GPUs, NICs, NVSwitches and of every bridge above them, from sysfs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.host.pci import MAX_FUNCTIONS, PCI_DEVICES, PciTree
from peerwatch_exporter.sources.host.pci_link import PciLinks
from peerwatch_exporter.sources.host.rarely import Rarely
from peerwatch_exporter.sources.host.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.pci import PciFunction
    from peerwatch_exporter.sources.host.pci_link import PciLink

_DEVICES = "/sys/bus/pci/devices"
# Another board or firmware would have to come for it to change: chosen, a minute is soon enough.
_LIMITS_SECONDS = 60
_FUNCTION_LABELS = ("bdf",)

SPECS: tuple[MetricSpec, ...] = (
    *needing(
        "GPU or NIC on PCIe",
        MetricSpec(
            "pcie_device_info",
            "gauge",
            "1",
            ("bdf", "kind", "parent", "vendor", "device_id", "numa_node"),
            "A PCIe function that training needs, seen since the exporter started: kind gpu, nic, "
            "nvswitch, or a bridge or root_port above one. parent is the bridge right above it, "
            "empty at the root: follow it up to find the link that two devices share. Value is "
            "always 1.",
            f"{_DEVICES}/<bdf>, its link target, class, vendor, device, numa_node",
        ),
        MetricSpec(
            "pcie_device_present",
            "gauge",
            "1",
            _FUNCTION_LABELS,
            "0 if a function seen since the exporter started is gone, or fell off the bus: it is "
            "listed, and reads as all ones.",
            f"{_DEVICES}/<bdf>/{{current_link_width,config}}",
        ),
        MetricSpec(
            "pcie_link_speed_transfers_per_second",
            "gauge",
            "transfers per second",
            _FUNCTION_LABELS,
            "Transfers per second and lane of the function's link now; the link is the one above "
            "it, of a root port or a switch's downstream port the one below. An idle GPU lowers "
            "it: compare only under load.",
            f"{_DEVICES}/<bdf>/current_link_speed",
        ),
        MetricSpec(
            "pcie_link_speed_max_transfers_per_second",
            "gauge",
            "transfers per second",
            _FUNCTION_LABELS,
            "Highest transfers per second and lane that the function itself allows. A link is as "
            "fast as the slower of its two ends: take the smaller of this and of the parent's.",
            f"{_DEVICES}/<bdf>/max_link_speed",
            every_seconds=_LIMITS_SECONDS,
        ),
        MetricSpec(
            "pcie_link_width_lanes",
            "gauge",
            "lanes",
            _FUNCTION_LABELS,
            "Lanes of the function's link now; 0 for a port whose link is down.",
            f"{_DEVICES}/<bdf>/current_link_width",
        ),
        MetricSpec(
            "pcie_link_width_lanes_max",
            "gauge",
            "lanes",
            _FUNCTION_LABELS,
            "Lanes that the function itself allows. Fewer in use than both ends allow: a contact, "
            "a riser or a cable is bad.",
            f"{_DEVICES}/<bdf>/max_link_width",
            every_seconds=_LIMITS_SECONDS,
        ),
    ),
    MetricSpec(
        "pcie_aer_errors_total",
        "counter",
        "1",
        ("bdf", "severity", "type"),
        "PCIe advanced error reports. Severity correctable is split by the kernel's type name "
        "(RxErr, BadTLP, Timeout, ...): the link repaired them and lost time, many mean a bad "
        "contact. nonfatal and fatal are one total each: data was lost, the device may be gone.",
        f"{_DEVICES}/<bdf>/aer_dev_{{correctable,nonfatal,fatal}}",
        hardware="PCIe AER",
    ),
)

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
    topic="PCIe links and errors",
    metrics=SPECS,
)
class PcieCollector:
    """Reads every function of interest; one that is gone costs itself and stays visible."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        # A refused link value is a sign of a lost function and asked for again at once.
        self._sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic, rest_seconds=0)
        self._tree = PciTree(self._sysfs)
        self._links = PciLinks(self._sysfs)
        self._seen: dict[str, PciFunction] = {}
        self._limits = Rarely[None](_LIMITS_SECONDS, sources.monotonic)

    def collect(self) -> Iterable[Family]:
        """Return the PCIe families.

        Raises
        ------
        NoData
            If the node has and had neither a GPU, a NIC nor an NVSwitch on PCIe.
        UnreadableValues
            At the end, if some values could not be read.
        """
        functions = self._tree.functions()
        for bdf, function in functions.items():
            if bdf in self._seen or len(self._seen) < 2 * MAX_FUNCTIONS:
                self._seen[bdf] = function
        if not self._seen:
            raise NoData(f"No GPU or NIC is in {str(self._sysfs.root / PCI_DEVICES)!r}.")
        self._limits(self._links.forget_limits)
        links = {bdf: self._links.link(bdf) for bdf in functions}
        self._links.forget(set(functions))
        yield from _facts(self._seen.values(), links)
        yield from _link_families(links)
        yield self._errors(functions)
        self._sysfs.end()

    def _errors(self, bdfs: Iterable[str]) -> Family:
        errors = family("pcie_aer_errors_total")
        for bdf in bdfs:
            for severity, kind, count in self._links.errors(bdf):
                errors.rows.append(((bdf, severity, kind), count))
        return errors


def _facts(functions: Iterable[PciFunction], links: dict[str, PciLink]) -> Iterable[Family]:
    info = family("pcie_device_info")
    present = family("pcie_device_present")
    for function in functions:
        labels = (
            function.bdf,
            function.kind,
            function.parent,
            function.vendor,
            function.device_id,
            function.numa_node,
        )
        info.add_metric(labels, 1)
        link = links.get(function.bdf)
        present.add_metric([function.bdf], link is not None and link.answers)
    return info, present


def _link_families(links: dict[str, PciLink]) -> Iterable[Family]:
    for name, attribute in _LINK_VALUES.items():
        values = family(name)
        for bdf, link in links.items():
            value = getattr(link, attribute)
            if value is not None:
                values.add_metric([bdf], value)
        yield values
