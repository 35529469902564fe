"""What of PCIe is set by firmware and scripts, from the functions' configuration space.

The kernel shows all of it to those with CAP_SYS_ADMIN, and to others the first 64 bytes only, in
which nothing of this stands.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.pci import PCI_DEVICES

if TYPE_CHECKING:
    from peerwatch_exporter.sources.host.sysfs import Sysfs

# PCI Express Base Specification: capabilities begin at the byte that 0x34 names; extended ones at
# 0x100. Each names the next; there is room for so many.
_FIRST_CAPABILITY, _FIRST_EXTENDED = 0x34, 0x100
_MOST_CAPABILITIES = 96
_PCI_EXPRESS, _ACS = 0x10, 0x000D
_DEVICE_CONTROL, _ACS_CONTROL = 8, 6
# What those may read who may not read all.
_UNPRIVILEGED_BYTES = 64
_ALL_BYTES = 4096
# ACS control: redirection of requests and completions between peers, and of upstream traffic. With
# any of them a GPU reaches the NIC next to it by way of the CPU (NCCL's troubleshooting guide).
_REDIRECTS = 0b0001_1100


@dataclass(frozen=True, slots=True)
class PciConfig:
    """How a function is set; None is what it does not have.

    Parameters
    ----------
    max_payload_bytes, max_read_request_bytes
        Longest packets that it sends, and asks for.
    redirects
        Whether its access control (ACS) sends traffic between peers by way of the root.
    """

    max_payload_bytes: int | None = None
    max_read_request_bytes: int | None = None
    redirects: bool | None = None


class HiddenConfigError(PermissionError):
    """The configuration space is there and hidden from those without CAP_SYS_ADMIN."""


def read_config(sysfs: Sysfs, bdf: str) -> PciConfig:
    """Return how a function is set.

    Raises
    ------
    HiddenConfigError
        If the kernel shows the first 64 bytes only.
    """
    content = sysfs.content(f"{PCI_DEVICES}/{bdf}/config", _ALL_BYTES)
    if not content:
        return PciConfig()
    if len(content) <= _UNPRIVILEGED_BYTES:
        raise HiddenConfigError(
            f"The configuration space of {bdf} is hidden: the exporter needs CAP_SYS_ADMIN for "
            "pcie_max_payload, pcie_max_read_request and pcie.acs, and goes on without them."
        )
    return parse_config(content)


def parse_config(content: bytes) -> PciConfig:
    """Return how the function is set whose configuration space this is; garbage gives nothing."""
    payload = request = redirects = None
    if (place := _capability(content, _PCI_EXPRESS)) is not None:
        control = _word(content, place + _DEVICE_CONTROL)
        if control is not None and control != 0xFFFF:
            payload, request = 128 << (control >> 5 & 7), 128 << (control >> 12 & 7)
    if (place := _extended(content, _ACS)) is not None:
        acs = _word(content, place + _ACS_CONTROL)
        redirects = None if acs is None or acs == 0xFFFF else bool(acs & _REDIRECTS)
    return PciConfig(payload, request, redirects)


def _capability(content: bytes, wanted: int) -> int | None:
    place = content[_FIRST_CAPABILITY] & ~3
    for _ in range(_MOST_CAPABILITIES):
        if not _UNPRIVILEGED_BYTES <= place < len(content) - 1:
            return None
        if content[place] == wanted:
            return place
        place = content[place + 1] & ~3
    return None


def _extended(content: bytes, wanted: int) -> int | None:
    place = _FIRST_EXTENDED
    for _ in range(_MOST_CAPABILITIES):
        if not _FIRST_EXTENDED <= place <= len(content) - 4:
            return None
        (header,) = struct.unpack_from("<I", content, place)
        if header & 0xFFFF == wanted:
            return place
        place = header >> 20 & ~3
    return None


def _word(content: bytes, place: int) -> int | None:
    return struct.unpack_from("<H", content, place)[0] if place + 2 <= len(content) else None
