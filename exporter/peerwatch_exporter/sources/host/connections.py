"""Established TCP connections to other hosts, with what the kernel measures of each.

The kernel is asked by netlink (sock_diag, linux/inet_diag.h), as the command ``ss -ti`` does: no
privilege is needed, and it answers about this process's network namespace.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from peerwatch_exporter.errors import SourceMissing
from peerwatch_exporter.sources.host.netlink import (
    ATTRIBUTE,
    DONE,
    DUMP,
    ERROR,
    HEADER,
    IS_REQUEST,
    GarbledAnswerError,
    attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/sock_diag.h, linux/inet_diag.h.
_SOCK_DIAG, _BY_FAMILY = 4, 20
# Family, protocol, attributes wanted, padding, states; of the socket asked for, nothing.
_REQUEST = struct.Struct("=BBBxI48x")
_ESTABLISHED = 1 << 1
_INFO = 2
_BYTECODE = 1
# Family, state, timer, retransmissions, ports, addresses, interface, cookie, and counters.
_MESSAGE = struct.Struct("=4x4x16s16s4xQ20x")
# A condition on the remote address and port (any), and a jump, with the bytes to go on by if it
# holds and if not.
_OPERATION = struct.Struct("=BBH")
_HOST = struct.Struct("=BBxxi")
_JUMP, _REMOTE = 1, 8
# linux/tcp.h, struct tcp_info: newer kernels give more of it, and nothing ever moved.
_LAST_SENT = struct.Struct("=44xI")  # milliseconds ago
_ROUND_TRIP = struct.Struct("=68xI")  # microseconds, smoothed
_ACKNOWLEDGED = struct.Struct("=120xQ")  # Linux 4.1
_LEAST_ROUND_TRIP = struct.Struct("=148xI")  # Linux 4.6; microseconds, of the last 5 minutes
# Nothing was measured yet.
_NO_ROUND_TRIP = 0xFFFFFFFF
_MAPPED = b"\0" * 10 + b"\xff\xff"

# The kernel answers while it is asked; a collector has 0.8 s. It gives 32 KiB at a time at most.
_TIMEOUT_SECONDS = 0.5
_MOST_BYTES = 65536
# The kernel lacks sock_diag, its module for TCP or IPv6, or seccomp or a sandbox forbids it.
_NOT_THERE = frozenset(
    {
        errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP,
        errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT,
    }
)  # fmt: skip


class Connection(NamedTuple):
    """One established connection.

    Parameters
    ----------
    cookie
        The kernel's own number of the socket; no other ever has it.
    address, peer
        Of this node and of the other host.
    sent_seconds
        How long ago data was sent last.
    acknowledged_bytes
        What has arrived there since the connection began.
    round_trip_seconds
        Smoothed by the kernel over the last packets, waiting in queues included.
    least_round_trip_seconds
        The shortest of the last five minutes; None from kernels before 4.6.
    """

    cookie: int
    address: str
    peer: str
    sent_seconds: float
    acknowledged_bytes: int
    round_trip_seconds: float
    least_round_trip_seconds: float | None


class TooManyConnectionsError(Exception):
    """There are more connections than are read; ``found`` has those that were."""

    error_class = "too_many_connections"

    def __init__(self, found: list[Connection]) -> None:
        super().__init__(f"Only the first {len(found)} TCP connections are read.")
        self.found = found


def connections(most: int) -> list[Connection]:
    """Return the established TCP connections to other hosts, in the kernel's order.

    Raises
    ------
    TooManyConnectionsError
        If there are more than ``most``.
    SourceMissing
        If the kernel has no such list, or this process may not ask for it.
    OSError, GarbledAnswerError
        If it does not answer, or what it should not.
    """
    found: list[Connection] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found += _of_family(family, most - len(found))
        except TooManyConnectionsError as error:
            raise TooManyConnectionsError(found + error.found) from None
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in _NOT_THERE:
                break  # a kernel without IPv6
            if error.errno in _NOT_THERE:
                raise SourceMissing(
                    f"The kernel does not list TCP connections to this process: {error}."
                ) from error
            raise
    return found


def _of_family(family: int, most: int) -> list[Connection]:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
    others = _other_hosts()
    body += ATTRIBUTE.pack(ATTRIBUTE.size + len(others), _BYTECODE) + others
    request = HEADER.pack(HEADER.size + len(body), _BY_FAMILY, IS_REQUEST | DUMP, 1, 0) + body
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    found: list[Connection] = []
    # Closed in the middle of its answer, it costs the kernel nothing more.
    with socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG) as netlink:
        netlink.settimeout(_TIMEOUT_SECONDS)
        netlink.bind((0, 0))
        netlink.sendto(request, (0, 0))
        while True:
            answer, sender = netlink.recvfrom(_MOST_BYTES)
            # Port 0 is the kernel's.
            if sender[0] != 0:
                continue
            is_last = parse_answer(answer, found)
            if len(found) > most:
                raise TooManyConnectionsError(found[:most])
            if is_last:
                return found


def _other_hosts() -> bytes:
    """Return the kernel's program that lets only connections to other hosts pass."""
    program = b""
    for family, bits, address in (
        (socket.AF_INET6, 128, socket.inet_pton(socket.AF_INET6, "::1")),
        # In IPv6, too.
        (socket.AF_INET, 8, socket.inet_pton(socket.AF_INET, "127.0.0.0")),
    ):
        condition = _HOST.pack(family, bits, -1) + address
        length = _OPERATION.size + len(condition)
        # Who goes on by more than is left is left out.
        end = _OPERATION.size + len(program) + 4
        program = (
            _OPERATION.pack(_REMOTE, length, length + _OPERATION.size)
            + condition
            + _OPERATION.pack(_JUMP, _OPERATION.size, end)
            + program
        )
    return program


def parse_answer(answer: bytes, found: list[Connection]) -> bool:
    """Add the connections in one datagram of the kernel's answer; return whether it is the last.

    Raises
    ------
    OSError
        If the kernel reports an error.
    GarbledAnswerError
        If it cannot be understood.
    """
    start = 0
    while start + HEADER.size <= len(answer):
        length, kind, *_ = HEADER.unpack_from(answer, start)
        if not HEADER.size <= length <= len(answer) - start:
            raise GarbledAnswerError(f"A message of {length} bytes, {len(answer) - start} left.")
        body = answer[start + HEADER.size : start + length]
        if kind == DONE:
            # A list that broke off says so at its end.
            if len(body) >= 4 and struct.unpack_from("=i", body)[0] < 0:
                _raise_error(body)
            return True
        if kind == ERROR:
            _raise_error(body)
        if kind != _BY_FAMILY or len(body) < _MESSAGE.size:
            raise GarbledAnswerError(f"A message of type {kind} with {len(body)} bytes.")
        found += _connection(body)
        start += length + -length % 4
    if start < len(answer):
        raise GarbledAnswerError(f"{len(answer) - start} bytes are left behind the messages.")
    return False


def _raise_error(body: bytes) -> None:
    if len(body) < 4:
        raise GarbledAnswerError(f"An error of {len(body)} bytes.")
    number = -struct.unpack_from("=i", body)[0]
    raise OSError(number, os.strerror(number))


def _connection(body: bytes) -> Iterator[Connection]:
    """Yield a connection; nothing without measurements, or to an address of this node itself."""
    address, peer, cookie = _MESSAGE.unpack_from(body)
    if address == peer:
        return
    for kind, info in attributes(body[_MESSAGE.size :]):
        if kind != _INFO or len(info) < _ACKNOWLEDGED.size:
            continue
        round_trip, least = _ROUND_TRIP.unpack_from(info)[0], None
        if len(info) >= _LEAST_ROUND_TRIP.size:
            least = _LEAST_ROUND_TRIP.unpack_from(info)[0]
            if least == _NO_ROUND_TRIP:
                return
        yield Connection(
            cookie,
            _text(body[0], address),
            _text(body[0], peer),
            _LAST_SENT.unpack_from(info)[0] / 1e3,
            _ACKNOWLEDGED.unpack_from(info)[0],
            round_trip / 1e6,
            None if least is None else least / 1e6,
        )


def _text(family: int, address: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[:4])
    # What talks IPv4 through a socket of IPv6 is known by its IPv4 address.
    if address.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, address[len(_MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, address)
