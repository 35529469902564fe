"""Calls of methods over D-Bus: the part of the protocol that reading a few strings needs.

A connection per request, to the system bus. No library is needed, and ``systemctl`` need not be in
the exporter's container. Types: strings and object paths, unsigned numbers, arrays and structures.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_CALL, _RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _DESTINATION, _SIGNATURE = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
)
_HEAD = struct.Struct("<cBBBIII")
# systemd's list has some 300 bytes for each unit: room for ten thousand. Lines of the handshake
# have some dozen characters.
_LARGEST_BYTES = 4 * 2**20
_LONGEST_LINE = 512


class DbusError(OSError):
    """The bus or who was asked refused, or does not speak D-Bus."""

    error_class = "dbus_error"


class DbusConnection:
    """A connection to a bus, for a ``with`` block.

    Parameters
    ----------
    path
        The bus' socket.
    timeout_seconds
        For everything that happens on the connection together.

    Raises
    ------
    OSError
        If nobody listens, or does not answer in time.
    """

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        self._until = time.monotonic() + timeout_seconds
        self._serial = 0
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_seconds)
            self._socket.connect(str(path))
            self._authenticate()
            bus = "org.freedesktop.DBus"
            self.call(bus, "/org/freedesktop/DBus", bus, "Hello")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._socket.close()

    def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        strings: Sequence[str] | None = None,
    ) -> list[Any]:
        """Call a method and return its answer's values.

        Parameters
        ----------
        destination, path, interface, member
            Whom, and what.
        strings
            The method's argument, an array of strings; None: it has none.

        Raises
        ------
        DbusError
            If it is refused.
        OSError
            If there is no answer in time.
        """
        self._serial += 1
        fields = [
            (_PATH, "o", path),
            (_INTERFACE, "s", interface),
            (_MEMBER, "s", member),
            (_DESTINATION, "s", destination),
        ]
        body = b""
        if strings is not None:
            fields.append((_SIGNATURE, "g", "as"))
            body = _array_of_strings(strings)
        listed = b""
        for code, kind, value in fields:
            listed += b"\0" * (-len(listed) % 8) + bytes([code, 1]) + kind.encode() + b"\0"
            if kind == "g":
                listed += bytes([len(value)]) + value.encode() + b"\0"
            else:
                listed += b"\0" * (-len(listed) % 4) + _string(value)
        head = _HEAD.pack(b"l", _CALL, 0, 1, len(body), self._serial, len(listed)) + listed
        self._send(head + b"\0" * (-len(head) % 8) + body)
        return self._answer()

    def _authenticate(self) -> None:
        user = str(os.geteuid()).encode().hex().encode()
        self._send(b"\0AUTH EXTERNAL " + user + b"\r\n")
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > _LONGEST_LINE:
                raise DbusError("The socket does not speak D-Bus.")
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        if not line.startswith(b"OK "):
            raise DbusError(f"The bus refuses user {os.geteuid()}: {line[:80]!r}.")
        self._send(b"BEGIN\r\n")

    def _answer(self) -> list[Any]:
        while True:
            kind, fields, body = self._message()
            # Signals and answers to nobody come as they like.
            if fields.get(_REPLY_SERIAL) != self._serial:
                continue
            values = body.values(str(fields.get(_SIGNATURE, "")))
            if kind == _ERROR:
                raise DbusError(f"{fields.get(_ERROR_NAME)}: {values[:1]}.")
            if kind == _RETURN:
                return values

    def _message(self) -> tuple[int, dict[int, Any], _Reader]:
        head = self._take(_HEAD.size)
        order, kind, _, _, length, _, listed = _HEAD.unpack(head)
        # A bus of the same machine has its byte order: those that Python's wheels exist for.
        if order != b"l" or length + listed > _LARGEST_BYTES:
            raise DbusError(f"A message of {length + listed} bytes in order {order!r}.")
        padded = listed + (-(_HEAD.size + listed) % 8)
        reader = _Reader(head + self._take(padded), _HEAD.size)
        fields = {}
        while reader.at < _HEAD.size + listed:
            reader.align(8)
            code = reader.byte()
            fields[code] = reader.values(reader.signature())[0]
        return kind, fields, _Reader(self._take(length), 0)

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._receive()
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _receive(self) -> None:
        self._socket.settimeout(self._left())
        part = self._socket.recv(65536)
        if not part:
            raise DbusError("The bus closed the connection.")
        self._buffer += part

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("The bus does not answer in time.")
        return left


class _Reader:
    """Reads values from a message's bytes, each at its alignment."""

    def __init__(self, data: bytes, at: int) -> None:
        self.at = at
        self._data = data

    def align(self, size: int) -> None:
        self.at += -self.at % size

    def byte(self) -> int:
        self.at += 1
        return self._slice(self.at - 1, self.at)[0]

    def signature(self) -> str:
        length = self.byte()
        self.at += length + 1
        return self._slice(self.at - length - 1, self.at - 1).decode("ascii", "replace")

    def values(self, signature: str) -> list[Any]:
        found = []
        while signature:
            kind, signature = _split(signature)
            found.append(self._value(kind))
        return found

    def _value(self, kind: str) -> Any:  # noqa: ANN401 - what the signature says
        if kind in {"s", "o"}:
            length = self._number()
            self.at += length + 1
            return self._slice(self.at - length - 1, self.at - 1).decode("utf-8", "replace")
        if kind == "u":
            return self._number()
        if kind == "g":
            return self.signature()
        if kind.startswith("("):
            self.align(8)
            return tuple(self.values(kind[1:-1]))
        if kind.startswith("a"):
            length = self._number()
            if kind[1] == "(":
                self.align(8)
            end = self.at + length
            found = []
            while self.at < end:
                found.append(self._value(kind[1:]))
            return found
        raise DbusError(f"A value of type {kind!r} was not asked for.")

    def _number(self) -> int:
        self.align(4)
        self.at += 4
        return int.from_bytes(self._slice(self.at - 4, self.at), "little")

    def _slice(self, start: int, end: int) -> bytes:
        if end > len(self._data):
            raise DbusError("A message ends in the middle of a value.")
        return self._data[start:end]


def _split(signature: str) -> tuple[str, str]:
    """Return the first complete type of a signature, and the rest."""
    end = 0
    while end < len(signature) and signature[end] == "a":
        end += 1
    depth = 0
    for position in range(end, len(signature)):
        depth += (signature[position] == "(") - (signature[position] == ")")
        if depth == 0:
            return signature[: position + 1], signature[position + 1 :]
    raise DbusError(f"{signature!r} is no signature.")


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw + b"\0"


def _array_of_strings(strings: Sequence[str]) -> bytes:
    listed = b""
    for text in strings:
        # The length of the array stands before it, in four bytes: alignment is as if it were not.
        listed += b"\0" * (-len(listed) % 4) + _string(text)
    return struct.pack("<I", len(listed)) + listed
