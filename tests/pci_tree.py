"""Writes small PCIe trees as sysfs shows them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GPU = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
NIC = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"}
NVSWITCH = {"class": "0x068000", "vendor": "0x10de", "device": "0x22a3"}
BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}
LINK = {
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
    "aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0",
    "aer_dev_nonfatal": "DLP 0\nTOTAL_ERR_NONFATAL 0",
    "aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 0",
    "numa_node": "0",
}


class PciFiles:
    """A /sys below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, path: str, facts: dict[str, str], **files: str) -> str:
        """Write a function at a path such as ``pci0000:10/0000:10:01.0``; return its address.

        Bridges on the way that are not there yet are written too.
        """
        parent, _, bdf = path.rpartition("/")
        if parent.partition("/")[2] and not (self.root / "devices" / parent).exists():
            self.add(parent, BRIDGE)
        place = self.root / "devices" / path
        place.mkdir(parents=True)
        for name, text in {**LINK, **facts, **files}.items():
            (place / name).write_text(f"{text}\n")
        link = self.root / "bus/pci/devices" / bdf
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(place, link.parent))
        return bdf

    def write(self, bdf: str, **files: str | bytes) -> None:
        """Write files of a function anew; bytes as they are."""
        for name, text in files.items():
            content = text if isinstance(text, bytes) else f"{text}\n".encode()
            (self.root / "bus/pci/devices" / bdf / name).write_bytes(content)

    def remove(self, bdf: str) -> None:
        """Take a function away, as after an unplug."""
        link = self.root / "bus/pci/devices" / bdf
        shutil.rmtree(link.resolve())
        link.unlink()

    def rdma(self, device: str, bdf: str, port: str = "1", **files: str) -> None:
        """Give a function an RDMA device."""
        base = self.root / "class/infiniband" / device
        (base / "ports" / port).mkdir(parents=True)
        (base / "device").symlink_to(f"../../../bus/pci/devices/{bdf}")
        for name, text in files.items():
            path = base / "ports" / port / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
