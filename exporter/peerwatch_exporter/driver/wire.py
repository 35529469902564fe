"""Messages between the driver process and its parent: framed, checked, and small.

A frame is a magic word, the length and the CRC-32 of what follows, and a marshalled tuple. A
child that dies in the middle of one, or a library that prints into the channel, is noticed here.

Label values hardly ever change, so they travel once: after that, a family is its values alone,
as packed doubles, or its name, as long as it is the very same.
"""

from __future__ import annotations

import marshal
import struct
from array import array
from binascii import crc32
from typing import TYPE_CHECKING, Any

from peerwatch_common.metrics.spec import Family
from peerwatch_exporter.catalog import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAGIC = b"PWd1"
_HEADER = struct.Struct("<4sII")
# Far above the 30 KiB of a second's answers: longer is garbage.
MAX_MESSAGE_BYTES = 16 * 2**20

Labels = list[tuple[str, ...]]
# Name, labels and values of each family: None if they are those of the last answer.
Packed = list[tuple[str, Labels | None, bytes | None]]


class WireError(Exception):
    """What came is no message: garbage, too long, or of the wrong shape."""


def pack(message: tuple[Any, ...]) -> bytes:
    """Return the frame of a message made of plain values."""
    body = marshal.dumps(message)
    return _HEADER.pack(_MAGIC, len(body), crc32(body)) + body


class Inbox:
    """Collects bytes until they make whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[tuple[Any, ...]]:
        """Add bytes; return the messages that are now complete.

        Raises
        ------
        WireError
            If the bytes are no frame, or one longer than ``MAX_MESSAGE_BYTES``.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= _HEADER.size:
            magic, length, checksum = _HEADER.unpack_from(self._bytes)
            if magic != _MAGIC or length > MAX_MESSAGE_BYTES:
                raise WireError(f"No frame begins with {bytes(self._bytes[: _HEADER.size])!r}.")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                break
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            messages.append(_unmarshal(body, checksum))
        return messages


def _unmarshal(body: bytes, checksum: int) -> tuple[Any, ...]:
    # Only what was sent on purpose reaches marshal, which trusts its input.
    if crc32(body) != checksum:
        raise WireError(f"A frame of {len(body)} bytes has the wrong checksum.")
    try:
        message = marshal.loads(body)  # noqa: S302 - checked above, and from our own child
    except (EOFError, ValueError, TypeError) as error:
        raise WireError(f"A frame of {len(body)} bytes holds no message: {error}.") from error
    if not isinstance(message, tuple) or not message:
        raise WireError(f"A frame holds {type(message).__name__}, not a message.")
    return message


_NOTHING: tuple[Labels | None, Family | None] = None, None


class FamilyPacker:
    """Packs families and remembers which of them, and which label values, the other side has."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str], tuple[Labels, Family]] = {}

    def pack(self, collector: str, families: Iterable[Family]) -> Packed:
        """Return the families of one answer; those without samples are left out."""
        packed: Packed = []
        for family in families:
            if not family.rows:
                continue
            key = (collector, family.spec.name)
            before, last = self._sent.get(key, _NOTHING)
            # What is read rarely is the very same object meanwhile.
            if last is family:
                packed.append((family.spec.name, None, None))
                continue
            labels = [row[0] for row in family.rows]
            self._sent[key] = labels, family
            values = array("d", [row[1] for row in family.rows]).tobytes()
            packed.append((family.spec.name, None if before == labels else labels, values))
        return packed


class FamilyUnpacker:
    """The other side: puts label values and values together again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Labels, bytes, Family]] = {}

    def unpack(self, collector: str, packed: object) -> list[Family]:
        """Return the families; one that did not change, or its label values, are the same objects.

        Raises
        ------
        WireError
            If the packed families are not what ``FamilyPacker`` makes.
        """
        try:
            return [self._family(collector, *item) for item in packed]  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"Collector {collector!r} sent no families: {error!r}.") from error

    def _family(
        self, collector: str, name: str, labels: Labels | None, packed: bytes | None
    ) -> Family:
        spec, key = CATALOG[name], (collector, name)
        if labels is None:
            labels, before, newest = self._known[key]
            if packed is None or before == packed:
                return newest
        elif not all(type(row) is tuple and len(row) == len(spec.labels) for row in labels):
            raise ValueError(f"{name} has labels of another width than {len(spec.labels)}")
        if packed is None:
            raise ValueError(f"{name} has labels and no values")
        values = array("d")
        values.frombytes(packed)
        family = spec.family()
        family.rows = list(zip(labels, values, strict=True))
        self._known[key] = labels, packed, family
        return family
