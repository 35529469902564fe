"""How a network interface keeps classes of traffic apart: PFC, ETS, DSCP, DCBX (Linux's dcbnl).

What lossless RoCE rests on. The kernel is asked by netlink (RTM_GETDCB, linux/dcbnl.h), as the
command ``dcb`` does: no privilege is needed, but the interface has to be in this process's network
namespace. Of IEEE 802.1Qaz only; a driver that speaks no more than its predecessor CEE says none.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
from typing import TYPE_CHECKING

from peerwatch_exporter.sources.host.netlink import (
    ATTRIBUTE,
    ERROR,
    HEADER,
    IS_REQUEST,
    GarbledAnswerError,
    attributes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# linux/rtnetlink.h.
_GET_DCB = 78
# linux/dcbnl.h: family, command, padding; top-level attributes; command.
_DCB = struct.Struct("=BBH")
_INTERFACE, _IEEE, _DCBX = 1, 13, 14
_IEEE_GET = 21

_INTERFACE_NAME_BYTES = 15  # IFNAMSIZ of linux/if.h, less the end
# The kernel answers while it is asked, with a memory page at most; more is room.
_TIMEOUT_SECONDS = 1.0
_MOST_BYTES = 65536
_MOST_MESSAGES = 8
_ABSENT = (errno.EOPNOTSUPP, errno.ENODEV)

# IEEE 802.1Q has eight; the numbers are those of linux/dcbnl.h.
_CLASSES = 8
_ALGORITHMS = {0: "strict", 1: "shaper", 255: "vendor"}
_ETS = 2
_DSCP = 5
_SELECTORS = {1: "ethertype", 2: "tcp", 3: "udp", 4: "port", _DSCP: "dscp", 255: "pcp"}
_DCBX_FLAGS = ("host", "firmware", "cee", "ieee", "static")


def read_dcb(interface: str) -> dict[str, str]:
    """Return how an interface is set up, by aspect; nothing if its driver has none of it.

    Raises
    ------
    OSError
        If netlink is not to be used, or the driver reports an error.
    GarbledAnswerError
        If the answer cannot be understood.
    """
    name = interface.encode("utf-8", "surrogateescape")
    if not 0 < len(name) <= _INTERFACE_NAME_BYTES or b"\0" in name:
        return {}
    length = ATTRIBUTE.size + len(name) + 1
    body = _DCB.pack(socket.AF_UNSPEC, _IEEE_GET, 0) + ATTRIBUTE.pack(length, _INTERFACE)
    body += name + b"\0" * (1 + -length % 4)
    request = HEADER.pack(HEADER.size + len(body), _GET_DCB, IS_REQUEST, 1, 0) + body
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_TIMEOUT_SECONDS)
        netlink.bind((0, 0))
        netlink.sendto(request, (0, 0))
        for _ in range(_MOST_MESSAGES):
            answer, sender = netlink.recvfrom(_MOST_BYTES)
            # Port 0 is the kernel's.
            if sender[0] == 0:
                return parse_answer(answer, interface)
    raise GarbledAnswerError(f"Others than the kernel answer about {interface!r}.")


def parse_answer(answer: bytes, interface: str) -> dict[str, str]:
    """Return what an answer says, by aspect; nothing if the driver has none of it.

    Parameters
    ----------
    answer
        One netlink message.
    interface
        Whom it is about, for errors.

    Raises
    ------
    OSError
        If it is an error other than that the driver, or the interface, is not there.
    GarbledAnswerError
        If it cannot be understood.
    """
    if len(answer) < HEADER.size + _DCB.size:
        raise GarbledAnswerError(f"An answer about {interface!r} of {len(answer)} bytes.")
    length, kind, *_ = HEADER.unpack_from(answer)
    if not HEADER.size + _DCB.size <= length <= len(answer):
        raise GarbledAnswerError(f"An answer about {interface!r} says it has {length} bytes.")
    if kind == ERROR:
        number = -struct.unpack_from("=i", answer, HEADER.size)[0]
        if number in _ABSENT:
            return {}
        raise OSError(number, os.strerror(number), interface)
    if kind != _GET_DCB:
        raise GarbledAnswerError(f"An answer about {interface!r} of type {kind}.")
    found: dict[str, str] = {}
    for attribute, data in attributes(answer[HEADER.size + _DCB.size : length]):
        if attribute == _IEEE:
            for inner, value in attributes(data):
                if inner in _DECODERS:
                    least, decode = _DECODERS[inner]
                    found |= decode(_enough(value, least))
        elif attribute == _DCBX:
            flags = _enough(data, 1)[0]
            names = [name for bit, name in enumerate(_DCBX_FLAGS) if flags >> bit & 1]
            found["dcbx"] = " ".join(names) or "none"
    return found


def _enough(data: bytes, least: int) -> bytes:
    if len(data) < least:
        raise GarbledAnswerError(f"An attribute has {len(data)} bytes instead of {least}.")
    return data


def _ets(data: bytes) -> dict[str, str]:
    """Read struct ieee_ets: which class a priority belongs to, and how classes share the link."""
    shares, algorithms = data[3:11], data[19:27]
    return {
        "ets_willing": "yes" if data[0] else "no",
        "ets_shares": " ".join(
            f"{share}%" if algorithm == _ETS else _ALGORITHMS.get(algorithm, str(algorithm))
            for algorithm, share in zip(algorithms, shares, strict=True)
        ),
        "ets_classes": _digits(data[27:35]),
    }


def _pfc(data: bytes) -> dict[str, str]:
    """Read the beginning of struct ieee_pfc; its counters are read elsewhere."""
    return {
        "pfc": _switches(data[1]),
        "pfc_delay": str(struct.unpack_from("=H", data, 4)[0]),
    }


def _peer_pfc(data: bytes) -> dict[str, str]:
    """Read the same of the switch, which only firmware that speaks LLDP knows."""
    return {"pfc_of_switch": _switches(data[1])}


def _applications(data: bytes) -> dict[str, str]:
    """Read the table of struct dcb_app: which priority a DSCP, a port or a protocol has."""
    dscp: dict[int, set[int]] = {}
    others = set()
    for _, entry in attributes(data):
        selector, priority, protocol = struct.unpack_from("=BBH", _enough(entry, 4))
        if selector == _DSCP:
            dscp.setdefault(protocol, set()).add(priority)
        else:
            others.add((_SELECTORS.get(selector, str(selector)), protocol, priority))
    ranges = [f"{name}:{'+'.join(map(str, sorted(dscp[first])))}" for first, name in _ranges(dscp)]
    listed = [f"{name} {protocol}:{priority}" for name, protocol, priority in sorted(others)]
    return {
        "dscp_priorities": " ".join(ranges) or "none",
        "application_priorities": ", ".join(listed) or "none",
    }


def _ranges(values: dict[int, set[int]]) -> Iterator[tuple[int, str]]:
    """Yield the first key of each range of keys that have the same value, and its name."""
    # Keys that follow one another have the same difference from their place.
    places = enumerate(sorted(values))
    for _, group in itertools.groupby(places, lambda pair: (pair[1] - pair[0], values[pair[1]])):
        keys = [key for _, key in group]
        yield keys[0], f"{keys[0]}-{keys[-1]}" if len(keys) > 1 else f"{keys[0]}"


def _limits(data: bytes) -> dict[str, str]:
    """Read struct ieee_maxrate: kbit/s of each class, 0 without a limit."""
    limits = struct.unpack_from(f"={_CLASSES}Q", data)
    return {"class_limits_kilobits": " ".join(map(str, limits)) if any(limits) else "none"}


def _buffers(data: bytes) -> dict[str, str]:
    """Read struct dcbnl_buffer: where packets wait while PFC has paused the sender."""
    sizes = struct.unpack_from(f"={_CLASSES}I", data, _CLASSES)
    return {
        "buffer_priorities": _digits(data[:_CLASSES]),
        "buffer_bytes": " ".join(map(str, sizes)),
    }


def _trust(data: bytes) -> dict[str, str]:
    """Read by what packets are told apart, in order of precedence."""
    selectors = [_enough(entry, 1)[0] for _, entry in attributes(data)]
    return {"trust": " ".join(_SELECTORS.get(each, str(each)) for each in selectors) or "none"}


def _digits(values: Iterable[int]) -> str:
    """Return what the eight priorities have, such as 00010000: priority 0 stands first."""
    return "".join(str(value) if value < _CLASSES else "?" for value in values)


def _switches(bits: int) -> str:
    return "".join(str(bits >> priority & 1) for priority in range(_CLASSES))


# Attributes of IEEE 802.1Qaz: how many bytes the wanted part of each has, and who reads it.
_DECODERS: dict[int, tuple[int, Callable[[bytes], dict[str, str]]]] = {
    1: (35, _ets),
    2: (6, _pfc),
    3: (0, _applications),
    5: (6, _peer_pfc),
    7: (8 * _CLASSES, _limits),
    10: (5 * _CLASSES, _buffers),
    11: (0, _trust),
}
