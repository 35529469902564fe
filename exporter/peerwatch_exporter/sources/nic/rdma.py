"""Which RDMA ports the node has, and what belongs to each: network interface, PCI function, GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.pci import PciTree, nearest
from peerwatch_exporter.sources.host.sysfs import pci_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peerwatch_exporter.sources.gpu.facts import GpuFacts
    from peerwatch_exporter.sources.host.pci import Nearness, PciFunction
    from peerwatch_exporter.sources.host.sysfs import Sysfs

RDMA_ROOT = "class/infiniband"
# A node may have hundreds of RDMA devices that are virtual functions; the exposition must stay
# bounded.
MAX_PORTS = 128
# New and vanished devices show after so long: chosen, within a scrape interval of 15 s.
_LIST_SECONDS = 10.0
# Which files a port has, and what is written of it once, is looked up anew after so long: chosen,
# drivers and cables are changed by hand.
_RENEW_SECONDS = 60.0

_DEVICE = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_PORT = re.compile(r"\d{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device.

    Parameters
    ----------
    device, port
        Names of the device and of its port, such as ``mlx5_0`` and ``1``.
    bdf
        Address of its PCI function, empty if it has none.
    interface
        Name of its network interface, empty if it has none.
    """

    device: str
    port: str
    bdf: str
    interface: str

    @property
    def path(self) -> str:
        """Where its files are, below sysfs."""
        return f"{RDMA_ROOT}/{self.device}/ports/{self.port}"

    @property
    def labels(self) -> tuple[str, str]:
        """Its labels, device and port."""
        return self.device, self.port


class RdmaPorts:
    """The node's RDMA ports; the directories are listed every 10 s.

    Parameters
    ----------
    sysfs
        Where they are read.
    exclude
        Patterns (``mlx5_4``, ``mlx5_1*``) of devices that are never touched.
    monotonic
        Clock for the age of the list.

    Attributes
    ----------
    found
        How many ports the last list had before it was cut at ``MAX_PORTS``.
    """

    def __init__(
        self, sysfs: Sysfs, exclude: Sequence[str], monotonic: Callable[[], float]
    ) -> None:
        self.found = 0
        self._sysfs = sysfs
        self._exclude = exclude
        self._monotonic = monotonic
        self._ports: tuple[RdmaPort, ...] = ()
        self._listed_at: float | None = None
        self._renewed_at = 0.0

    def listed(self) -> tuple[RdmaPort, ...]:
        """Return the ports by device and port, 128 at most.

        They are the same object for a minute, as long as the ports are the same.
        """
        now = self._monotonic()
        if self._listed_at is None or not 0 <= now - self._listed_at < _LIST_SECONDS:
            self._listed_at = now
            ports = tuple(self._read())
            if ports != self._ports or not 0 <= now - self._renewed_at < _RENEW_SECONDS:
                self._ports, self._renewed_at = ports, now
        return self._ports

    def _read(self) -> list[RdmaPort]:
        pairs = [
            (device, port)
            for device in self._sysfs.names(RDMA_ROOT)
            if _DEVICE.fullmatch(device) and not self._is_excluded(device)
            for port in self._sysfs.names(f"{RDMA_ROOT}/{device}/ports")
            if _PORT.fullmatch(port)
        ]
        self.found = len(pairs)
        return [
            RdmaPort(
                device,
                port,
                self._sysfs.link_name(f"{RDMA_ROOT}/{device}/device") or "",
                self._interface(device, port),
            )
            for device, port in pairs[:MAX_PORTS]
        ]

    def _is_excluded(self, device: str) -> bool:
        return any(fnmatchcase(device, pattern) for pattern in self._exclude)

    def _interface(self, device: str, port: str) -> str:
        base = f"{RDMA_ROOT}/{device}"
        name = self._sysfs.text(f"{base}/ports/{port}/gid_attrs/ndevs/0")
        if name:
            return name
        # InfiniBand has no ndevs; ports of one function differ in dev_port, which starts at 0.
        names = self._sysfs.names(f"{base}/device/net")
        if len(names) <= 1:
            return "".join(names)
        for name in names:
            number = self._sysfs.integer(f"{base}/device/net/{name}/dev_port")
            if number is not None and str(number + 1) == port:
                return name
        return ""


@dataclass(frozen=True, slots=True)
class NearGpus:
    """Which GPUs are nearest to a PCI function.

    Parameters
    ----------
    nearness
        What they share with it.
    gpus
        Their indexes, all equally near.
    own
        The one it is paired with, empty if no PCIe switch is shared: where several NICs are as
        near to several GPUs, they are shared out in the order of their addresses.
    """

    nearness: Nearness
    gpus: tuple[str, ...]
    own: str


class GpuNeighbours:
    """Finds the GPUs next to each NIC.

    Parameters
    ----------
    sysfs
        For the PCIe tree.
    facts
        Which index is which board.
    """

    def __init__(self, sysfs: Sysfs, facts: GpuFacts) -> None:
        self._tree = PciTree(sysfs)
        self._facts = facts

    def find(self, bdfs: Sequence[str]) -> Mapping[str, NearGpus]:
        """Return the nearest GPUs by the address of each function that has any.

        Parameters
        ----------
        bdfs
            Addresses of the RDMA devices' functions.
        """
        functions = self._tree.functions()
        boards = {
            pci_address(board.pci_bus_id) or "": board.index for board in self._facts.boards()
        }
        gpus = [functions[bdf] for bdf in boards if bdf in functions]
        turns: dict[tuple[str, ...], int] = {}
        found = {}
        for bdf in sorted(set(bdfs) & functions.keys()):
            nearness, near = nearest(functions[bdf], gpus)
            if nearness is not None:
                found[bdf] = _neighbours(nearness, near, boards, turns)
        return found


def _neighbours(
    nearness: Nearness,
    near: Sequence[PciFunction],
    boards: Mapping[str, int],
    turns: dict[tuple[str, ...], int],
) -> NearGpus:
    indexes = tuple(str(boards[gpu.bdf]) for gpu in near)
    turn = turns.get(indexes, 0)
    turns[indexes] = turn + 1
    own = indexes[turn % len(indexes)] if nearness == "switch" else ""
    return NearGpus(nearness, indexes, own)
