"""The PCIe tree as far as training needs it: GPUs, NICs, NVSwitches and the bridges above them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from peerwatch_exporter.sources.host.sysfs import Sysfs

PCI_DEVICES = "bus/pci/devices"
Kind = Literal["gpu", "nic", "nvswitch", "bridge", "root_port"]

# A node has some dozens of such functions; a machine with hundreds of virtual ones must not
# fill the exposition with them.
MAX_FUNCTIONS = 128

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
NVIDIA, _AMD = "0x10de", "0x1002"
# PCI class codes: base class and subclass.
_NETWORK, _DISPLAY, _ACCELERATOR = "0x02", "0x03", "0x12"
THREE_D, _OTHER_BRIDGE = "0x0302", "0x0680"

# How near two functions are: they share a bridge, the host bridge, or the NUMA node.
Nearness = Literal["switch", "host_bridge", "numa"]


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One function of interest.

    Parameters
    ----------
    bdf
        Its address as sysfs writes it.
    kind
        What it is.
    host_bridge
        Name of the host bridge it hangs from, empty if unknown.
    above
        Addresses of the bridges above it, root port first.
    vendor, device_id
        Hexadecimal, as sysfs writes them; empty if unknown.
    numa_node
        As sysfs writes it, ``-1`` or empty if there is none.
    """

    bdf: str
    kind: Kind
    host_bridge: str
    above: tuple[str, ...]
    vendor: str
    device_id: str
    numa_node: str

    @property
    def parent(self) -> str:
        """Address of the bridge right above, empty at the root."""
        return self.above[-1] if self.above else ""


class PciTree:
    """Reads the tree; what a function is, is read once as long as the set of addresses stands.

    Parameters
    ----------
    sysfs
        Where it is read.
    """

    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self._names: list[str] | None = None
        self._functions: dict[str, PciFunction] = {}

    def functions(self) -> Mapping[str, PciFunction]:
        """Return the functions by address: GPUs, NICs and NVSwitches, then the bridges above.

        Virtual functions are left out: they share the link of their physical one.
        """
        names = self._sysfs.names(PCI_DEVICES)
        if names != self._names:
            self._functions = self._read(names)
            self._names = names
        return self._functions

    def _read(self, names: Iterable[str]) -> dict[str, PciFunction]:
        found: dict[str, PciFunction] = {}
        for name in names:
            if len(found) >= MAX_FUNCTIONS:
                break
            kind = self._kind(name) if _ADDRESS.fullmatch(name) else None
            if kind is not None:
                found[name] = self._function(name, kind, *self._path(name))
        bridges: dict[str, PciFunction] = {}
        for function in found.values():
            for depth, bdf in enumerate(function.above):
                if bdf not in found and bdf not in bridges and len(bridges) < MAX_FUNCTIONS:
                    kind = "bridge" if depth else "root_port"
                    above = function.above[:depth]
                    bridges[bdf] = self._function(bdf, kind, function.host_bridge, above)
        return found | dict(sorted(bridges.items()))

    def _function(
        self, bdf: str, kind: Kind, host_bridge: str, above: tuple[str, ...]
    ) -> PciFunction:
        facts = [self._sysfs.text(f"{PCI_DEVICES}/{bdf}/{name}") or "" for name in _FACTS]
        return PciFunction(bdf, kind, host_bridge, above, *facts)

    def _kind(self, name: str) -> Kind | None:
        base = f"{PCI_DEVICES}/{name}"
        code = self._sysfs.text(f"{base}/class") or ""
        if not code.startswith((_NETWORK, _DISPLAY, _ACCELERATOR, _OTHER_BRIDGE)):
            return None
        vendor = self._sysfs.text(f"{base}/vendor") or ""
        kind = _kind_of(code, vendor)
        return None if kind and self._sysfs.exists(f"{base}/physfn") else kind

    def _path(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return the host bridge and the bridges above, from the path that the link names."""
        parts = (self._sysfs.link(f"{PCI_DEVICES}/{name}") or "").split("/")[:-1]
        host_bridge = next((part for part in parts if _HOST_BRIDGE.fullmatch(part)), "")
        return host_bridge, tuple(part for part in parts if _ADDRESS.fullmatch(part))


_FACTS = ("vendor", "device", "numa_node")


def _kind_of(code: str, vendor: str) -> Kind | None:
    if code.startswith(_NETWORK):
        return "nic"
    if code.startswith(_OTHER_BRIDGE):
        return "nvswitch" if vendor == NVIDIA else None
    # The screen of the board's own management processor is a display too.
    if code.startswith((THREE_D, _ACCELERATOR)) or vendor in {NVIDIA, _AMD}:
        return "gpu"
    return None


def nearest(
    function: PciFunction, candidates: Sequence[PciFunction]
) -> tuple[Nearness | None, list[PciFunction]]:
    """Return which of the others are nearest by PCIe, and by what; several may be equally near.

    Parameters
    ----------
    function
        Whose neighbours are searched.
    others
        Among which, in the order in which the nearest are returned.
    """
    depths = [(_shared(function.above, other.above), other) for other in candidates]
    deepest = max((depth for depth, _ in depths), default=0)
    if deepest:
        return "switch", [other for depth, other in depths if depth == deepest]
    same = [
        other
        for other in candidates
        if function.host_bridge and other.host_bridge == function.host_bridge
    ]
    if same:
        return "host_bridge", same
    node = function.numa_node
    same = [other for other in candidates if node not in {"", "-1"} and other.numa_node == node]
    return ("numa", same) if same else (None, [])


def _shared(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many bridges from the root on are the same."""
    shared = 0
    for mine, other in zip(first, second, strict=False):
        if mine != other:
            break
        shared += 1
    return shared
