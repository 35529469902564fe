"""PCIe as the kernel sees it, from sysfs: links and errors of GPUs, NICs and what is above them."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_exporter.catalog.hardware import needing

_FUNCTION = ("bdf",)
_DEVICES = "/sys/bus/pci/devices"

_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "pcie_device_info",
        "gauge",
        "1",
        ("bdf", "kind", "parent", "vendor", "device_id", "numa_node"),
        "A PCIe function that training needs, seen since the exporter started: kind gpu, nic, "
        "nvswitch, or a bridge or root_port above one. parent is the bridge right above it, empty "
        "at the root: follow it up to find the link that two devices share. Value is always 1.",
        f"{_DEVICES}/<bdf>, its link target, class, vendor, device, numa_node",
    ),
    MetricSpec(
        "pcie_device_present",
        "gauge",
        "1",
        _FUNCTION,
        "0 if a function seen since the exporter started is gone, or fell off the bus: it is "
        "listed, and reads as all ones.",
        f"{_DEVICES}/<bdf>/{{current_link_width,config}}",
    ),
    MetricSpec(
        "pcie_link_speed_transfers_per_second",
        "gauge",
        "transfers per second",
        _FUNCTION,
        "Transfers per second and lane of the function's link now; the link is the one above it, "
        "of a root port or a switch's downstream port the one below. An idle GPU lowers it: "
        "compare only under load.",
        f"{_DEVICES}/<bdf>/current_link_speed",
    ),
    MetricSpec(
        "pcie_link_speed_max_transfers_per_second",
        "gauge",
        "transfers per second",
        _FUNCTION,
        "Highest transfers per second and lane that the function itself allows. A link is as "
        "fast as the slower of its two ends: take the smaller of this and of the parent's.",
        f"{_DEVICES}/<bdf>/max_link_speed",
    ),
    MetricSpec(
        "pcie_link_width_lanes",
        "gauge",
        "lanes",
        _FUNCTION,
        "Lanes of the function's link now; 0 for a port whose link is down.",
        f"{_DEVICES}/<bdf>/current_link_width",
    ),
    MetricSpec(
        "pcie_link_width_lanes_max",
        "gauge",
        "lanes",
        _FUNCTION,
        "Lanes that the function itself allows. Fewer in use than both ends allow: a contact, a "
        "riser or a cable is bad.",
        f"{_DEVICES}/<bdf>/max_link_width",
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

SPECS: tuple[MetricSpec, ...] = needing("GPU or NIC on PCIe", _SPECS)
