"""Pairs of nodes measured by torch's collectives, and the store by which the nodes meet."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import psutil

from peerwatch_checks.collectives.ranks import Group, measure

if TYPE_CHECKING:
    from peerwatch_checks.multihost.member import Member
    from peerwatch_checks.multihost.rounds import Measure, PairTask, Store

# Of a pair's time: the rest is for hearing of the port and for telling the result.
_SHARE = 0.85
_PREFIX = "peerwatch-check"


def store_of(member: Member, seconds: float) -> Store:
    """Return the store by which the nodes meet; the first node keeps it unless the launcher does.

    Raises
    ------
    RuntimeError
        If it is not there in time, or the port is taken.
    """
    import torch  # noqa: PLC0415 - only this needs it

    # Its stores are public, and not among the names that its types export.
    distributed: Any = torch.distributed
    store = distributed.TCPStore(
        member.host,
        member.port,
        is_master=member.index == 0 and not member.agent_store,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
    )
    return cast("Store", distributed.PrefixStore(_PREFIX, store))


def interface_of(address: str) -> str | None:
    """Return the network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return str(name)
    return None


def by_all_reduce(
    store: Store, devices: Sequence[str], address: str, *, size: int, repeats: int
) -> Measure:
    """Return what measures a pair by an all-reduce over all devices of both nodes.

    Parameters
    ----------
    store
        Where the first node of a pair says on which port it listens.
    devices
        This node's, as torch names them; the partner has as many.
    address
        This node's, whose interface is used.
    size, repeats
        Bytes of each rank's buffer, and how often it is timed.
    """
    interface = interface_of(address)
    environment = (
        {}
        if interface is None
        else {
            "GLOO_SOCKET_IFNAME": interface,
            "NCCL_SOCKET_IFNAME": interface,
        }
    )
    backend = "nccl" if devices[0].startswith("cuda") else "gloo"

    def measured(task: PairTask) -> tuple[float, str]:
        key = f"port/{task.name}"
        if task.first:
            port = _free_port(address)
            store.set(key, str(port))
        else:
            try:
                store.wait([key], timedelta(seconds=(1 - _SHARE) * task.seconds))
            except RuntimeError:
                return 0.0, "the partner did not begin"
            port = int(store.get(key))
        host = f"[{task.host}]" if ":" in task.host else task.host
        found = measure(
            devices,
            backend,
            size=size,
            repeats=repeats,
            seconds=_SHARE * task.seconds,
            environment=environment,
            group=Group(
                f"tcp://{host}:{port}", 0 if task.first else len(devices), 2 * len(devices)
            ),
        )
        if found.failure:
            return 0.0, found.failure
        if found.wrong:
            return 0.0, f"wrong result of {', '.join(found.wrong)}"
        return found.bandwidth["all_reduce"], ""

    return measured


def _free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
