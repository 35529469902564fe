"""How RDMA ports are set up: firmware, link, MTU, and what RoCE does about congestion.

ECN and the traffic class have files with NVIDIA's own driver (MLNX_OFED, DOCA) only; the kernel's
mlx5 has them elsewhere, or for tools alone. PFC, ETS and DSCP are asked of the kernel, for all
drivers alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.netlink import GarbledAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

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
_PRIORITIES = 8  # IEEE 802.1Q
# Bonds of RoCE have two interfaces; room for four times as many.
_MOST_MEMBERS = 8


def read_ports(
    sysfs: Sysfs,
    ports: tuple[RdmaPort, ...],
    values: ConfigValues,
    ask_dcb: Callable[[str], dict[str, str]] | None = None,
) -> list[Exception]:
    """Add how the node's RDMA ports are set up, and how many there are.

    Parameters
    ----------
    sysfs
        Where they are read.
    ports
        The ports.
    values
        Where it is added.
    ask_dcb
        Returns what the kernel says of an interface's classes of traffic; None: it is not asked.

    Returns
    -------
    list of Exception
        Why it did not say so.
    """
    problems: list[Exception] = []
    if not ports:
        return problems
    values.add("nic.count", str(len(ports)))
    found: dict[str, dict[str, str | None]] = {}
    for port in ports:
        name = port.device if port.port == "1" else f"{port.device}:{port.port}"
        known = _aspects(sysfs, port)
        if ask_dcb is not None and port.interface:
            # The driver's own file of the trust stands, for those nodes that have it.
            own = {aspect: value for aspect, value in known.items() if value}
            known = {**_dcb(sysfs, port, ask_dcb, problems), **own}
        for aspect, value in known.items():
            found.setdefault(aspect, {})[name] = value
    for aspect, by_port in found.items():
        values.add_devices("nic", aspect, by_port)
    return problems


def _aspects(sysfs: Sysfs, port: RdmaPort) -> dict[str, str | None]:
    device = f"class/infiniband/{port.device}"
    places = {aspect: f"{device}/{file}" for aspect, file in _OF_DEVICE.items()}
    places |= {aspect: f"{port.path}/{file}" for aspect, file in _OF_PORT.items()}
    places["traffic_class"] = f"{device}/tc/{port.port}/traffic_class"
    # Those that connect by rdma_cm; the directory is there where somebody made it to set them.
    cma = f"kernel/config/rdma_cm/{port.device}/ports/{port.port}"
    places |= {"cma_tos": f"{cma}/default_roce_tos", "cma_mode": f"{cma}/default_roce_mode"}
    interface = f"class/net/{port.interface}" if port.interface else ""
    if interface:
        places |= {aspect: f"{interface}/{file}" for aspect, file in _OF_INTERFACE.items()}
    values = {aspect: sysfs.text(path) for aspect, path in places.items()}
    for aspect, folder in _ECN.items() if interface else ():
        values[aspect] = _priorities(sysfs, f"{interface}/{folder}")
    return values


def _dcb(
    sysfs: Sysfs,
    port: RdmaPort,
    ask_dcb: Callable[[str], dict[str, str]],
    problems: list[Exception],
) -> dict[str, str]:
    """Return what the kernel says of a port's interface, or of the members of a bond."""
    members = (sysfs.text(f"class/net/{port.interface}/bonding/slaves") or port.interface).split()
    answers: dict[str, dict[str, str]] = {}
    for interface in members[:_MOST_MEMBERS]:
        try:
            answers[interface] = ask_dcb(interface)
        except (OSError, GarbledAnswerError) as error:
            problems.append(error)
    found = {}
    for aspect in sorted({aspect for answer in answers.values() for aspect in answer}):
        texts = {name: answer[aspect] for name, answer in answers.items() if aspect in answer}
        if len(set(texts.values())) == 1:
            found[aspect] = next(iter(texts.values()))
        else:
            found[aspect] = ", ".join(f"{name} {text}" for name, text in texts.items())
    return found


def _priorities(sysfs: Sysfs, folder: str) -> str | None:
    """Return the switches of the eight priorities, such as 00010000; None if there are none."""
    states = [sysfs.text(f"{folder}/{number}") for number in range(_PRIORITIES)]
    if all(state is None for state in states):
        return None
    return "".join(state if state in ("0", "1") else "?" for state in states)
