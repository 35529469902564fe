"""Pairs of nodes measured by torch's collectives, and the store by which the nodes meet."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import psutil

from peerwatch_checks.collectives.overlap import OverlapSeconds, overlap_ratio
from peerwatch_checks.collectives.ranks import Group, ask

if TYPE_CHECKING:
    from peerwatch_checks.multihost.member import Member
    from peerwatch_checks.multihost.rounds import Measure, PairTask, Store

# Of a pair's time: the rest, 9 s of the usual 60, is for hearing of the port and for telling the
# result.
_SHARE = 0.85
_PREFIX = "peerwatch-check"


def store_of(member: Member, seconds: float, *, purpose: str, port_offset: int) -> Store:
    """Return the store by which the nodes meet; the first node keeps it unless the launcher does.

    Parameters
    ----------
    member
        Which node this is.
    seconds
        Until then it is there.
    purpose
        Begins all keys: what other checks of the job left in the launcher's store is not read.
    port_offset
        Added to the port where the first node keeps the store, so that a node that is ahead with
        the next check does not meet the store of the one before.

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
        member.port + (0 if member.agent_store else port_offset),
        is_master=member.index == 0 and not member.agent_store,
        timeout=timedelta(seconds=seconds),
        wait_for_workers=False,
    )
    return cast("Store", distributed.PrefixStore(f"{_PREFIX}/{purpose}", store))


def interface_of(address: str) -> str | None:
    """Return the network interface that has an address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return str(name)
    return None


def by_all_reduce(
    store: Store, devices: Sequence[str], address: str, *, size: int, repeats: int
) -> Measure:
    """Return what measures a pair by an all-reduce over all devices of both nodes: GB/s.

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

    def value(ranks: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
        wrong = sorted({name for rank in ranks for name in rank if not rank[name]["right"]})
        if wrong:
            return 0.0, f"wrong result of {', '.join(wrong)}"
        return min(float(rank["all_reduce"]["bandwidth"]) for rank in ranks), ""

    work = {"task": "bandwidth", "size": size, "repeats": repeats, "least": False}
    return _by_ranks(store, devices, address, work, value)


def by_overlap(
    store: Store, devices: Sequence[str], address: str, *, size: int, repeats: int
) -> Measure:
    """Return what measures how far a pair hides an all-reduce behind computing: 0 to 1.

    Parameters as for ``by_all_reduce``.
    """

    def value(ranks: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
        return min(overlap_ratio(OverlapSeconds(**rank)) for rank in ranks), ""

    work = {"task": "overlap", "size": size, "repeats": repeats}
    return _by_ranks(store, devices, address, work, value)


def _by_ranks(
    store: Store,
    devices: Sequence[str],
    address: str,
    work: Mapping[str, object],
    value: Callable[[Sequence[Mapping[str, Any]]], tuple[float, str]],
) -> Measure:
    environment = interface_environment(address)
    backend = "nccl" if devices[0].startswith("cuda") else "gloo"

    def measured(task: PairTask) -> tuple[float, str]:
        try:
            init_method = meeting_point(
                store,
                f"port/{task.name}",
                address=address if task.first else "",
                host=task.host,
                seconds=(1 - _SHARE) * task.seconds,
            )
        except RuntimeError:
            return 0.0, "the partner did not begin"
        first = 0 if task.first else len(devices)
        found = ask(
            devices,
            {**work, "backend": backend},
            seconds=_SHARE * task.seconds,
            environment=environment,
            group=Group(init_method, first, 2 * len(devices)),
        )
        return (0.0, found.failure) if found.failure else value(found.ranks)

    return measured


def interface_environment(address: str) -> dict[str, str]:
    """Return the variables by which gloo and NCCL use the interface that has an address."""
    interface = interface_of(address)
    if interface is None:
        return {}
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}


def meeting_point(store: Store, key: str, *, address: str, host: str, seconds: float) -> str:
    """Return where the ranks of a group meet, as ``init_process_group`` takes it.

    Parameters
    ----------
    store, key
        Where the node whose first rank listens says on which port.
    address
        Its own address there; empty on all other nodes.
    host
        Address of the node that listens.
    seconds
        How long the others wait for it.

    Raises
    ------
    RuntimeError
        If it has not said so in time.
    """
    if address:
        port = _free_port(address)
        store.set(key, str(port))
    else:
        store.wait([key], timedelta(seconds=seconds))
        port = int(store.get(key))
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
