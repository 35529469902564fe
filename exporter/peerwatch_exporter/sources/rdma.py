"""Which RDMA ports the node has, and which network interface belongs to each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.sources.sysfs import Sysfs

RDMA_ROOT = "class/infiniband"


def rdma_ports(sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    """Yield (device, port) of every RDMA port."""
    for device in sysfs.names(RDMA_ROOT):
        for port in sysfs.names(f"{RDMA_ROOT}/{device}/ports"):
            yield device, port


def port_interface(sysfs: Sysfs, device: str, port: str) -> str:
    """Return the name of the port's network interface, empty if it has none."""
    base = f"{RDMA_ROOT}/{device}"
    name = sysfs.text(f"{base}/ports/{port}/gid_attrs/ndevs/0")
    if name:
        return name
    # InfiniBand has no ndevs; several ports of one function differ in dev_port, which starts at 0.
    names = sysfs.names(f"{base}/device/net")
    if len(names) <= 1:
        return "".join(names)
    for name in names:
        number = sysfs.integer(f"{base}/device/net/{name}/dev_port")
        if number is not None and str(number + 1) == port:
            return name
    return ""
