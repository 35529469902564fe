"""How RDMA ports are set up: firmware, link, MTU, and what RoCE does about congestion (sysfs).

Trust, ECN and the traffic class have files with NVIDIA's own driver (MLNX_OFED, DOCA) only; the
kernel's mlx5 has them elsewhere, or for tools alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerwatch_exporter.catalog.config_values import ConfigValues
    from peerwatch_exporter.sources.host.sysfs import Sysfs
    from peerwatch_exporter.sources.nic.rdma import RdmaPort

# By aspect: files below the RDMA device, the port, and the network interface.
_OF_DEVICE = {"firmware": "fw_ver", "board": "board_id", "model": "hca_type"}
_OF_PORT = {"link_layer": "link_layer", "rate": "rate"}
_OF_INTERFACE = {
    "mtu": "mtu",
    "trust": "qos/trust",
    "cnp_dscp": "ecn/roce_np/cnp_dscp",
    "cnp_priority": "ecn/roce_np/cnp_802p_prio",
}
# Notification point (answers marks) and reaction point (slows down), a file for each priority.
_ECN = {"ecn_notification": "ecn/roce_np/enable", "ecn_reaction": "ecn/roce_rp/enable"}
_PRIORITIES = 8


def read_ports(sysfs: Sysfs, ports: tuple[RdmaPort, ...], values: ConfigValues) -> None:
    """Add how the node's RDMA ports are set up, and how many there are."""
    if not ports:
        return
    values.add("nic.count", str(len(ports)))
    found: dict[str, dict[str, str | None]] = {}
    for port in ports:
        name = port.device if port.port == "1" else f"{port.device}:{port.port}"
        for aspect, value in _aspects(sysfs, port).items():
            found.setdefault(aspect, {})[name] = value
    for aspect, by_port in found.items():
        values.add_devices("nic", aspect, by_port)


def _aspects(sysfs: Sysfs, port: RdmaPort) -> dict[str, str | None]:
    device = f"class/infiniband/{port.device}"
    places = {aspect: f"{device}/{file}" for aspect, file in _OF_DEVICE.items()}
    places |= {aspect: f"{port.path}/{file}" for aspect, file in _OF_PORT.items()}
    places["traffic_class"] = f"{device}/tc/{port.port}/traffic_class"
    interface = f"class/net/{port.interface}" if port.interface else ""
    if interface:
        places |= {aspect: f"{interface}/{file}" for aspect, file in _OF_INTERFACE.items()}
    values = {aspect: sysfs.text(path) for aspect, path in places.items()}
    for aspect, folder in _ECN.items() if interface else ():
        values[aspect] = _priorities(sysfs, f"{interface}/{folder}")
    return values


def _priorities(sysfs: Sysfs, folder: str) -> str | None:
    """Return the switches of the eight priorities, such as 00010000; None if there are none."""
    states = [sysfs.text(f"{folder}/{number}") for number in range(_PRIORITIES)]
    if all(state is None for state in states):
        return None
    return "".join(state if state in ("0", "1") else "?" for state in states)
