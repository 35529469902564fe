"""The files below /sys of the fake node: the PCIe tree, RDMA ports and network interfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_demo.simulated_node.nics import RATE
from peerwatch_demo.simulated_node.node_plan import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_demo.simulated_node.files import Files
    from peerwatch_demo.simulated_node.machine import Machine
    from peerwatch_demo.simulated_node.nics import Nic
    from peerwatch_demo.simulated_node.node_plan import Slot
    from peerwatch_demo.simulated_node.scenario import Scenario

_SPEEDS = {3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
_BRIDGE, _NETWORK, _DISPLAY, _SWITCH = "0x060400", "0x020000", "0x030200", "0x068000"
_INTEL, _MELLANOX, _NVIDIA, _BROADCOM = "0x8086", "0x15b3", "0x10de", "0x1000"
_CORRECTABLE = (
    "RxErr",
    "BadTLP",
    "BadDLLP",
    "Rollover",
    "Timeout",
    "NonFatalErr",
    "CorrIntErr",
    "HeaderOF",
)
_UNCORRECTABLE = ("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt")
# What a function that fell off the bus reads as: all ones, of which the width has six bits.
_NO_WIDTH = 63
# As an HGX board with eight H100 has.
_NVSWITCHES = 4


class Sysfs:
    """Writes /sys: all of it once, then what changes.

    Parameters
    ----------
    files
        Where it is written, below ``sys``.
    scenario
        What happens on the node.
    onset
        When the scenario's change begins, in seconds after the start.
    nics
        The node's NICs, by number.
    machine
        For its memory controllers.
    """

    def __init__(
        self,
        files: Files,
        scenario: Scenario,
        onset: float,
        nics: tuple[Nic, ...],
        machine: Machine,
    ) -> None:
        self._files = files
        self._scenario = scenario
        self._onset = onset
        self._nics = nics
        self._machine = machine

    def create(self) -> None:
        """Write what never changes, and the links."""
        for slot in SLOTS:
            for bdf, above, code, vendor, device in _functions(slot):
                path = "/".join((f"devices/{slot.host_bridge}", *above, bdf))
                self._function(path, bdf, code, vendor, device, slot.numa_node)
                self._link_state(path, 5, 16)
            self._nic(slot)
        for number in range(_NVSWITCHES):
            bdf = f"0000:c{number + 1}:00.0"
            path = f"devices/pci0000:c0/0000:c0:0{number}.0/{bdf}"
            self._function(path, bdf, _SWITCH, _NVIDIA, "0x22a3", 1)
            self._link_state(path, 4, 2)
            port = f"0000:c0:0{number}.0"
            self._function(f"devices/pci0000:c0/{port}", port, _BRIDGE, _INTEL, "0x352a", 1)
            self._link_state(f"devices/pci0000:c0/{port}", 4, 2)

    def update(self, seconds: float) -> None:
        """Write what changed."""
        for slot, nic in zip(SLOTS, self._nics, strict=True):
            self._gpu(slot, seconds)
            self._port(slot, nic, seconds)
        for path, text in self._machine.memory_controllers(seconds).items():
            self._write(path, text)

    def update_traffic(self, seconds: float) -> None:
        """Write only the bytes that the ports moved."""
        for slot, nic in zip(SLOTS, self._nics, strict=True):
            base = f"{_rdma(slot)}/ports/1/counters"
            received, sent = nic.traffic(seconds)
            self._write(f"{base}/port_rcv_data", f"{received}\n")
            self._write(f"{base}/port_xmit_data", f"{sent}\n")

    def _write(self, path: str, text: str) -> None:
        self._files.write(f"sys/{path}", text)

    def _function(
        self, path: str, bdf: str, code: str, vendor: str, device: str, numa_node: int
    ) -> None:
        facts = {"class": code, "vendor": vendor, "device": device, "numa_node": str(numa_node)}
        for name, text in facts.items():
            self._write(f"{path}/{name}", f"{text}\n")
        self._errors(path, {})
        for severity in ("nonfatal", "fatal"):
            lines = [f"{name} 0" for name in (*_UNCORRECTABLE, f"TOTAL_ERR_{severity.upper()}")]
            self._write(f"{path}/aer_dev_{severity}", "\n".join(lines) + "\n")
        self._files.link(f"sys/bus/pci/devices/{bdf}", f"sys/{path}")

    def _link_state(self, path: str, generation: int, width: int) -> None:
        best, lanes = (4, 2) if "pci0000:c0" in path else (5, 16)
        self._write(f"{path}/max_link_speed", f"{_SPEEDS[best]}\n")
        self._write(f"{path}/max_link_width", f"{lanes}\n")
        self._write(f"{path}/current_link_speed", f"{_SPEEDS.get(generation, 'Unknown')}\n")
        self._write(f"{path}/current_link_width", f"{width}\n")

    def _errors(self, path: str, counts: dict[str, int]) -> None:
        rows = [f"{name} {counts.get(name, 0)}" for name in _CORRECTABLE]
        rows.append(f"TOTAL_ERR_COR {sum(counts.values())}")
        self._write(f"{path}/aer_dev_correctable", "\n".join(rows) + "\n")

    def _gpu(self, slot: Slot, seconds: float) -> None:
        fault = self._scenario.gpu(slot.index)
        since = seconds - self._onset
        if since < 0:
            return
        port = f"devices/{slot.host_bridge}/{slot.root_port}/{slot.upstream}/{slot.gpu_port}"
        gpu = f"{port}/{slot.gpu}"
        if fault.state == "lost":
            self._link_state(gpu, 0, _NO_WIDTH)
        if fault.pcie is not None:
            for path in (port, gpu):
                self._link_state(path, *fault.pcie)
        errors = self._scenario.aer.get(slot.index)
        if errors:
            counts = {name: int(rate * since) for name, rate in errors.items()}
            for path in (port, gpu):
                self._errors(path, counts)

    def _nic(self, slot: Slot) -> None:
        function = _nic_path(slot)
        rdma = _rdma(slot)
        interface = f"{function}/net/{slot.interface}"
        number = f"{slot.index:02x}"
        files = {
            f"{rdma}/board_id": "MT_0000000838",
            f"{rdma}/fw_ver": "28.39.2048",
            f"{rdma}/hca_type": "MT4129",
            f"{rdma}/node_type": "1: CA",
            f"{rdma}/node_guid": f"a088:c203:00d0:00{number}",
            f"{rdma}/sys_image_guid": f"a088:c203:00d0:00{number}",
            f"{rdma}/ports/1/link_layer": "Ethernet",
            f"{rdma}/ports/1/gid_attrs/ndevs/0": slot.interface,
            f"{rdma}/ports/1/hw_counters/lifespan": "10",
            f"{interface}/address": f"a0:88:c2:d0:00:{number}",
            f"{interface}/dev_port": "0",
            f"{interface}/mtu": "9000",
            f"{interface}/type": "1",
            f"{interface}/speed": "400000",
        }
        for path, text in files.items():
            self._write(path, f"{text}\n")
        self._files.link(f"sys/{rdma}/device", f"sys/{function}")
        self._files.link(f"sys/class/infiniband/{slot.device}", f"sys/{rdma}")
        self._files.link(f"sys/{interface}/device", f"sys/{function}")
        self._files.link(f"sys/class/net/{slot.interface}", f"sys/{interface}")

    def _port(self, slot: Slot, nic: Nic, seconds: float) -> None:
        base = f"{_rdma(slot)}/ports/1"
        interface = f"{_nic_path(slot)}/net/{slot.interface}"
        is_up = nic.is_up(seconds)
        self._write(f"{base}/state", "4: ACTIVE\n" if is_up else "1: DOWN\n")
        self._write(f"{base}/phys_state", "5: LinkUp\n" if is_up else "2: Polling\n")
        self._write(f"{base}/rate", f"{RATE}\n" if is_up else "10 Gb/sec (4X SDR)\n")
        self._write(f"{interface}/operstate", "up\n" if is_up else "down\n")
        self._write(f"{interface}/carrier", f"{int(is_up)}\n")
        self._write(f"{interface}/carrier_changes", f"{2 + nic.carrier_changes(seconds)}\n")
        for name, count in nic.files(seconds).items():
            self._write(f"{base}/{name}", f"{count}\n")


def _functions(slot: Slot) -> Iterator[tuple[str, tuple[str, ...], str, str, str]]:
    """Yield address, bridges above, class, vendor and device of a slot's functions."""
    root, switch = (slot.root_port,), (slot.root_port, slot.upstream)
    yield slot.root_port, (), _BRIDGE, _INTEL, "0x352a"
    yield slot.upstream, root, _BRIDGE, _BROADCOM, "0xc030"
    yield slot.nic_port, switch, _BRIDGE, _BROADCOM, "0xc030"
    yield slot.gpu_port, switch, _BRIDGE, _BROADCOM, "0xc030"
    yield slot.nic, (*switch, slot.nic_port), _NETWORK, _MELLANOX, "0x1021"
    yield slot.gpu, (*switch, slot.gpu_port), _DISPLAY, _NVIDIA, "0x2330"


def _nic_path(slot: Slot) -> str:
    above = (slot.host_bridge, slot.root_port, slot.upstream, slot.nic_port, slot.nic)
    return f"devices/{'/'.join(above)}"


def _rdma(slot: Slot) -> str:
    return f"{_nic_path(slot)}/infiniband/{slot.device}"
