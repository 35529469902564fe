"""Which board a GPU is: all that the main process needs of its readings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Which board it is. ``uuid`` and the rest are empty if it was lost before it ever answered.

    ``numa_node`` is that of the board's own memory, which only coherent boards (Grace) have.
    """

    index: int
    uuid: str = ""
    name: str = ""
    serial: str = ""
    pci_bus_id: str = ""
    vbios: str = ""
    numa_node: int | None = None

    @property
    def key(self) -> str:
        """What identifies the board: its uuid, or its index where the driver does not tell it."""
        return self.uuid or str(self.index)
