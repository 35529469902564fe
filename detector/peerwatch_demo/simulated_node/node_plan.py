"""Names and places of the fake node: a server with eight H100 and eight ConnectX-7 NICs.

Each GPU shares a PCIe switch with one NIC, as in the servers that training runs on.
"""

from __future__ import annotations

from dataclasses import dataclass

# As an H100 SXM node has, with some of its CPUs; it is the third node of a job of eight.
GPUS = 8
LINKS = 18
CPUS = 32
MEMORY_BYTES = 2 * 2**40
JOB_ID = "84213"
WORLD_SIZE = 64
FIRST_RANK = 16
LAUNCHER_PID = 4000
DRIVER_VERSION = "570.124.06"
# The node was started long before the exporter.
UPTIME_SECONDS = 3 * 86400


@dataclass(frozen=True, slots=True)
class Slot:
    """One PCIe switch with a GPU and a NIC below it.

    Parameters
    ----------
    index
        Of the GPU and of its NIC.
    """

    index: int

    @property
    def _bus(self) -> int:
        return 0x15 + 0x16 * self.index

    @property
    def host_bridge(self) -> str:
        """Name of the host bridge above."""
        return f"pci0000:{self._bus:02x}"

    @property
    def root_port(self) -> str:
        """PCI address of the root port."""
        return f"0000:{self._bus:02x}:01.0"

    @property
    def upstream(self) -> str:
        """PCI address of the switch's upper port."""
        return f"0000:{self._bus + 1:02x}:00.0"

    @property
    def nic_port(self) -> str:
        """PCI address of the switch port above the NIC."""
        return f"0000:{self._bus + 2:02x}:00.0"

    @property
    def gpu_port(self) -> str:
        """PCI address of the switch port above the GPU."""
        return f"0000:{self._bus + 2:02x}:01.0"

    @property
    def nic(self) -> str:
        """PCI address of the NIC."""
        return f"0000:{self._bus + 3:02x}:00.0"

    @property
    def gpu(self) -> str:
        """PCI address of the GPU."""
        return f"0000:{self._bus + 4:02x}:00.0"

    @property
    def numa_node(self) -> int:
        """The CPU socket it hangs from."""
        return self.index // 4

    @property
    def device(self) -> str:
        """Name of the RDMA device."""
        return f"mlx5_{self.index}"

    @property
    def interface(self) -> str:
        """Name of its network interface."""
        return f"eth{self.index + 2}"

    @property
    def uuid(self) -> str:
        """The GPU's UUID."""
        return f"GPU-5c0de{self.index:03x}-7a11-4b0d-9e55-d0000000{self.index:04x}"

    @property
    def pid(self) -> int:
        """The process of the rank that holds the GPU."""
        return LAUNCHER_PID + 100 + self.index


SLOTS = tuple(Slot(index) for index in range(GPUS))


def addresses() -> dict[str, str]:
    """Return the PCI addresses that lines of the kernel log may name, by their placeholder."""
    return {
        f"{word}{slot.index}": address
        for slot in SLOTS
        for word, address in (("gpu", slot.gpu), ("nic", slot.nic), ("port", slot.gpu_port))
    }
