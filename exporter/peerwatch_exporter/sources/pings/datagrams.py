"""UDP with what the kernel knows of a datagram: when it arrived, and at which own address."""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of linux/in.h, in6.h and asm-generic/socket.h; Python names only some of them.
_IP_PKTINFO, _IP_MTU_DISCOVER, _IP_MTU = 8, 10, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24
_IPV6_RECVPKTINFO, _IPV6_PKTINFO = 49, 50
# Never divided, and also sent where an answer of some router said that less fits.
_PMTUDISC_PROBE = 3
_SO_TIMESTAMPNS = 35
_IN_PKTINFO = struct.Struct("=I4s4s")
_IN6_PKTINFO = struct.Struct("=16sI")
_TIMESPEC = struct.Struct("@ll")
_ANCILLARY_BYTES = 256  # a time and an address are below 100
# Above the largest packet (8,900), so that one that is too long is seen to be.
_READ_BYTES = 9216

SocketAddress = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Datagram:
    """What arrived.

    Parameters
    ----------
    data
        Its bytes.
    source
        Where an answer goes to.
    time
        When the kernel had it (Unix time); None if it does not say.
    own_address
        The address of this node at which it arrived; empty if the kernel does not say.
    """

    data: bytes
    source: SocketAddress
    time: float | None
    own_address: str


def open_datagram_socket(family: int) -> socket.socket:
    """Return a UDP socket that never waits, whose datagrams have their times."""
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    # Older kernels and gVisor lack it: the time of reading is used then.
    with contextlib.suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return opened


def note_own_address(opened: socket.socket) -> None:
    """Have datagrams say at which address they arrived."""
    with contextlib.suppress(OSError):
        if opened.family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVPKTINFO, 1)
        else:
            opened.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)


def set_dscp(opened: socket.socket, dscp: int) -> None:
    """Have a UDP or TCP socket send with a DSCP, from 0 to 63; 0 leaves it as it is."""
    if not dscp:
        return
    # The two lower bits are ECN's.
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)


def never_divide(opened: socket.socket) -> None:
    """Have datagrams sent whole or not at all."""
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
    else:
        opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)


def largest_payload(connected: socket.socket) -> int:
    """Return how many bytes one datagram to the peer may have, as its interface allows."""
    if connected.family == socket.AF_INET6:
        return connected.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU) - 48
    return connected.getsockopt(socket.IPPROTO_IP, _IP_MTU) - 28


def receive(opened: socket.socket) -> Datagram | None:
    """Return the next datagram; None if none is there.

    Raises
    ------
    OSError
        What the peer's system said of one sent before, as that nobody listens.
    """
    try:
        data, ancillary, _, source = opened.recvmsg(_READ_BYTES, _ANCILLARY_BYTES)
    except BlockingIOError:
        return None
    time, own = None, ""
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(content[: _TIMESPEC.size])
            time = seconds + nanoseconds / 1e9
        elif level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
            own = socket.inet_ntop(socket.AF_INET, _IN_PKTINFO.unpack(content[:12])[1])
        elif level == socket.IPPROTO_IPV6 and kind == _IPV6_PKTINFO:
            own = socket.inet_ntop(socket.AF_INET6, _IN6_PKTINFO.unpack(content[:20])[0])
    return Datagram(data, source, time, own)


def answer(opened: socket.socket, data: bytes, to: Datagram) -> None:
    """Send an answer from the address at which the datagram arrived.

    Raises
    ------
    OSError
        If it cannot be sent.
    """
    opened.sendmsg([data], _from(opened.family, to.own_address), 0, to.source)


def _from(family: int, own: str) -> Iterable[tuple[int, int, bytes]]:
    if not own:
        return ()
    packed = socket.inet_pton(family, own)
    if family == socket.AF_INET6:
        return ((socket.IPPROTO_IPV6, _IPV6_PKTINFO, _IN6_PKTINFO.pack(packed, 0)),)
    return ((socket.IPPROTO_IP, _IP_PKTINFO, _IN_PKTINFO.pack(0, packed, bytes(4))),)


def is_own(address: str) -> bool:
    """Whether an address is one of this node's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True
