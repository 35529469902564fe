"""How many NVIDIA GPUs the PCIe bus shows: what a node should have when its driver says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.pci import NVIDIA, PCI_DEVICES, THREE_D, PciTree

if TYPE_CHECKING:
    from peerwatch_exporter.sources.host.sysfs import Sysfs


class NvidiaGpusOnPci:
    """Counts the NVIDIA GPUs that are meant for this host's own driver.

    A GPU that left the bus still counts. One that is passed through to a virtual machine
    (``vfio-pci``, ``pci-stub``, ``xen-pciback``) does not, nor does a screen's GPU that another
    driver than NVIDIA's drives.

    Parameters
    ----------
    sysfs
        Where the bus is read.
    """

    def __init__(self, sysfs: Sysfs) -> None:
        self._sysfs = sysfs
        self._tree = PciTree(sysfs)
        self._seen: set[str] = set()

    def count(self) -> int:
        """Return how many there are, or were since the start; 0 where sysfs cannot be read."""
        for bdf, function in self._tree.functions().items():
            if function.kind == "gpu" and function.vendor == NVIDIA:
                if self._is_ours(bdf):
                    self._seen.add(bdf)
                else:
                    self._seen.discard(bdf)
        return len(self._seen)

    def _is_ours(self, bdf: str) -> bool:
        base = f"{PCI_DEVICES}/{bdf}"
        driver = self._sysfs.link_name(f"{base}/driver")
        if driver in {None, "nvidia"}:
            return True
        # A boot without NVIDIA's driver leaves a compute GPU to nouveau, which cannot use it.
        return driver == "nouveau" and (self._sysfs.text(f"{base}/class") or "").startswith(THREE_D)
