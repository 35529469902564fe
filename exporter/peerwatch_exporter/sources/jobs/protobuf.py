"""Protocol Buffers on the wire: the fields of a message, without its description.

Only what proto3 writes is read. An answer of the kubelet needs three of its fields, so generated
code and its runtime would weigh more than the rest of the exporter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_VARINT = 10  # 64 bits, seven in each byte
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MalformedMessageError(ValueError):
    """The bytes are no Protocol Buffers message."""

    error_class = "malformed_message"


def chunks(message: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield (field number, content) of the strings, bytes and messages among the fields.

    Numbers are skipped, and so is whatever field the caller does not know.

    Raises
    ------
    MalformedMessageError
        At the first byte that does not fit.
    """
    view = memoryview(message)
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _varint(view, at)
            continue
        if kind == _BYTES:
            length, at = _varint(view, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedMessageError(f"byte {at} has wire type {kind}")
        if length > len(view) - at:
            raise MalformedMessageError(f"a field of {length} bytes, and {len(view) - at} are left")
        if kind == _BYTES:
            yield key >> 3, view[at : at + length]
        at += length


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for position in range(at, min(at + _LONGEST_VARINT, len(view))):
        byte = view[position]
        value |= (byte & 0x7F) << 7 * (position - at)
        if byte < 0x80:
            return value, position + 1
    raise MalformedMessageError(f"a number that does not end at byte {at}")
