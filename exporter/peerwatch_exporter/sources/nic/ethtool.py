"""Statistics that a network driver keeps of its interface (what ``ethtool -S`` prints), by ioctl.

No privilege is needed, but the interface has to be in this process's network namespace.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# linux/sockios.h and linux/ethtool.h.
_SIOCETHTOOL = 0x8946
_GET_STRINGS, _GET_STATISTICS, _GET_SET_INFO = 0x1B, 0x1D, 0x37
_SET_STATISTICS = 1
_NAME_BYTES = 32
_VALUE_BYTES = 8
_INTERFACE_NAME_BYTES = 15

# Many kernels write as many entries as the driver has now, whatever the buffer holds. A driver may
# add some (new queues, a priority with PFC) right after it was asked for their number.
_SPARE_ENTRIES = 4096

# A driver may rename entries and keep their number (PFC moved to another priority): chosen, a
# minute of wrong names at most (docs/exporter.md).
_NAMES_SECONDS = 60.0
_REMEMBERED_INTERFACES = 256  # twice what is read at most

_Key = TypeVar("_Key")


class EthtoolReader(Protocol):
    """Where statistics come from: names and values of an interface, in the same order.

    Both raise ``OSError``: EOPNOTSUPP if the driver keeps none, ENODEV if there is no such
    interface.
    """

    def names(self, interface: str) -> Sequence[str]:
        """Return the names of the interface's statistics."""

    def values(self, interface: str) -> Sequence[int]:
        """Return their values."""


class EthtoolIoctl:
    """The kernel's answers, for the network namespace of the thread that asks first."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def __del__(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def names(self, interface: str) -> Sequence[str]:
        """Return the names of the interface's statistics."""
        count = self._count(interface)
        request = struct.pack("=III", _GET_STRINGS, _SET_STATISTICS, count)
        room = 2 * count + _SPARE_ENTRIES
        answer = self._call(interface, request, room * _NAME_BYTES)
        count = min(struct.unpack_from("=I", answer, 8)[0], room)
        raw = bytes(answer[len(request) : len(request) + count * _NAME_BYTES])
        return [
            raw[start : start + _NAME_BYTES].split(b"\0", 1)[0].decode("ascii", "replace")
            for start in range(0, len(raw), _NAME_BYTES)
        ]

    def values(self, interface: str) -> Sequence[int]:
        """Return their values."""
        count = self._count(interface)
        request = struct.pack("=II", _GET_STATISTICS, count)
        room = 2 * count + _SPARE_ENTRIES
        answer = self._call(interface, request, room * _VALUE_BYTES)
        count = min(struct.unpack_from("=I", answer, 4)[0], room)
        end = len(request) + count * _VALUE_BYTES
        return memoryview(answer)[len(request) : end].cast("Q")

    def _count(self, interface: str) -> int:
        """Return how many statistics the driver keeps."""
        request = struct.pack("=IIQ", _GET_SET_INFO, 0, 1 << _SET_STATISTICS)
        answer = self._call(interface, request, 4)
        mask, count = struct.unpack_from("=QI", answer, 8)
        if not mask or not count:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), interface)
        return int(count)

    def _call(self, interface: str, request: bytes, answer_bytes: int) -> bytearray:
        """Send one request; the answer stands in the same bytes, with room behind the request."""
        name = interface.encode("utf-8", "surrogateescape")
        if not 0 < len(name) <= _INTERFACE_NAME_BYTES or b"\0" in name:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
        buffer = bytearray(len(request) + answer_bytes)
        buffer[: len(request)] = request
        pinned = ctypes.c_char.from_buffer(buffer)
        ifreq = struct.pack("16sP16x", name, ctypes.addressof(pinned))
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        fcntl.ioctl(self._socket, _SIOCETHTOOL, ifreq)
        return buffer


def picker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function that returns what stands at these places of a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    # Of one place ``itemgetter`` returns the value itself, and there is none of no place.
    return lambda values: tuple(values[place] for place in places)


class StatisticsChangedError(Exception):
    """The driver's list of statistics changed again while it was read."""

    error_class = "statistics_changed"


@dataclass(frozen=True, slots=True)
class _Layout(Generic[_Key]):
    """Where the wanted entries stand among the statistics of an interface."""

    count: int
    keys: tuple[_Key, ...]
    pick: Callable[[Sequence[int]], tuple[int, ...]]
    learnt_at: float


class SelectedStatistics(Generic[_Key]):
    """Reads only wanted statistics; an interface's names are asked for once in a while.

    Parameters
    ----------
    reader
        Where names and values come from.
    choose
        Returns what a name stands for, or None if it is not wanted. Of several names that stand
        for the same, the first counts.
    monotonic
        Clock for the age of the names.
    """

    def __init__(
        self,
        reader: EthtoolReader,
        choose: Callable[[str], _Key | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._choose = choose
        self._monotonic = monotonic
        self._layouts: dict[str, _Layout[_Key]] = {}

    def read(self, interface: str) -> list[tuple[_Key, int]]:
        """Return the wanted statistics of an interface; raises what ``columns`` does."""
        return list(zip(*self.columns(interface), strict=True))

    def columns(self, interface: str) -> tuple[tuple[_Key, ...], list[int]]:
        """Return what is wanted of an interface: keys, and their values in the same order.

        The keys are the same object as before as long as the interface has the same statistics.

        Raises
        ------
        OSError
            As the reader does.
        StatisticsChangedError
            If names and values do not fit together; the next call asks for both again.
        """
        values = self._reader.values(interface)
        layout = self._layouts.get(interface)
        now = self._monotonic()
        if layout is None or layout.count != len(values) or now - layout.learnt_at > _NAMES_SECONDS:
            layout = self._learn(interface, now)
            if layout.count != len(values):
                values = self._reader.values(interface)
        if layout.count != len(values):
            raise StatisticsChangedError(
                f"{interface!r} has {layout.count} names for {len(values)} statistics."
            )
        return layout.keys, list(layout.pick(values))

    def _learn(self, interface: str, now: float) -> _Layout[_Key]:
        names = self._reader.names(interface)
        wanted: dict[_Key, int] = {}
        for index, name in enumerate(names):
            key = self._choose(name)
            if key is not None:
                wanted.setdefault(key, index)
        if len(self._layouts) >= _REMEMBERED_INTERFACES:
            self._layouts.clear()
        keys = tuple(wanted)
        before = self._layouts.get(interface)
        if before is not None and before.keys == keys:
            keys = before.keys
        layout = _Layout(len(names), keys, picker(list(wanted.values())), now)
        self._layouts[interface] = layout
        return layout
