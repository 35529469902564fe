"""Requests and answers as they stand on the wire, signed with the shared secret.

A request begins with a header of 36 bytes and 16 of a signature (HMAC-SHA256, cut) over all of it,
and is filled up with zeros to its size. An answer has 64 bytes, as the smallest request: whoever
sends requests in the name of somebody else gets nothing multiplied. A request must repeat a word
(``token``) that the peer gave to the very address it comes from within the last two minutes; one
with another word is answered with the right word alone. So no clocks need to agree, and what was
recorded cannot be used again later or from elsewhere.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Above the 52 of header and signature; below an MTU of 9,000 with the headers of IPv6 and UDP.
# Words of 64 bits are not guessed.
SMALL_BYTES = 64
MOST_BYTES = 8900
TOKEN_BYTES = SESSION_BYTES = 8
_MAGIC = b"pwp1"
# Magic, kind, status, port, session, sequence, token, received, microseconds; then the signature.
_HEADER = struct.Struct("!4sBBH8sI8sII")
_SIGNATURE_BYTES = 16  # 128 bits: RFC 2104 asks for half of the hash
_START = _HEADER.size + _SIGNATURE_BYTES


class Kind(IntEnum):
    """What a packet is: also keeps an answer from being sent back as a request."""

    REQUEST = 1
    ANSWER = 2
    TOKEN = 3
    # A request for a server of another protocol, and its answer.
    OPEN = 4
    OPENED = 5


REQUESTS = (Kind.REQUEST, Kind.OPEN)


class Status(IntEnum):
    """Whether a server was opened, and why not."""

    OPEN = 0
    BUSY = 1
    NOT_SERVING = 2


@dataclass(frozen=True, slots=True)
class Packet:
    """A request or an answer.

    Parameters
    ----------
    kind
        What it is.
    session
        8 random bytes: whose numbers ``sequence`` and ``received`` are.
    sequence
        Number of the request in its session, from 1.
    token
        Of a request, the word last got from the peer; of an answer, the word to use next.
    received
        Of an answer: how many requests of the session arrived, this one included.
    microseconds
        Of an answer: how long the request waited at the peer before it was answered.
    status, port
        Of an answer to ``OPEN``: whether a server was opened, and its port.
    """

    kind: Kind
    session: bytes
    sequence: int
    token: bytes
    received: int = 0
    microseconds: int = 0
    status: int = 0
    port: int = 0


def encode(packet: Packet, secret: bytes, size: int = SMALL_BYTES) -> bytes:
    """Return the bytes of a packet, ``size`` of them."""
    header = _HEADER.pack(
        _MAGIC,
        packet.kind,
        packet.status,
        packet.port,
        packet.session,
        packet.sequence & 0xFFFFFFFF,
        packet.token,
        packet.received & 0xFFFFFFFF,
        min(packet.microseconds, 0xFFFFFFFF),
    )
    padding = bytes(size - _START)
    return header + _signature(secret, header, padding) + padding


def decode(data: bytes, secrets: Sequence[bytes]) -> tuple[Packet, bytes] | None:
    """Return what arrived and the secret that signed it; None if none of them did.

    Parameters
    ----------
    data
        One datagram.
    secrets
        Those that are accepted.
    """
    if not SMALL_BYTES <= len(data) <= MOST_BYTES or data[:4] != _MAGIC:
        return None
    header, signature, padding = data[: _HEADER.size], data[_HEADER.size : _START], data[_START:]
    for secret in secrets:
        if hmac.compare_digest(signature, _signature(secret, header, padding)):
            _, kind, status, port, session, sequence, token, received, waited = _HEADER.unpack(
                header
            )
            try:
                known = Kind(kind)
            except ValueError:
                return None
            read = Packet(known, session, sequence, token, received, waited, status, port)
            return read, secret
    return None


def _signature(secret: bytes, header: bytes, padding: bytes) -> bytes:
    return hmac.digest(secret, header + padding, "sha256")[:_SIGNATURE_BYTES]
