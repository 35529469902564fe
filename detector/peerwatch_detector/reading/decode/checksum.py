"""CRC-32C (Castagnoli, RFC 3720 section 12.1), eight bytes at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.compiled import compiled

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, reflected


def _tables() -> NDArray[np.uint32]:
    """Return what a byte adds to the sum, 0 to 7 bytes before the end, shape (8, 256)."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for place in range(1, 8):
        before = tables[place - 1]
        tables[place] = before >> 8 ^ tables[0, before & 0xFF]
    return tables


_TABLES = _tables()
_U = np.uint32


@compiled
def crc32c(data: NDArray[np.uint8], begin: int, end: int) -> int:
    """Return the checksum of a stretch of bytes."""
    value, at = _U(0xFFFFFFFF), begin
    while at + 8 <= end:
        value ^= (
            _U(data[at])
            | _U(data[at + 1]) << _U(8)
            | _U(data[at + 2]) << _U(16)
            | _U(data[at + 3]) << _U(24)
        )
        value = (
            _TABLES[7, value & _U(0xFF)]
            ^ _TABLES[6, value >> _U(8) & _U(0xFF)]
            ^ _TABLES[5, value >> _U(16) & _U(0xFF)]
            ^ _TABLES[4, value >> _U(24)]
            ^ _TABLES[3, data[at + 4]]
            ^ _TABLES[2, data[at + 5]]
            ^ _TABLES[1, data[at + 6]]
            ^ _TABLES[0, data[at + 7]]
        )
        at += 8
    while at < end:
        value = value >> _U(8) ^ _TABLES[0, (value ^ _U(data[at])) & _U(0xFF)]
        at += 1
    return int(value ^ _U(0xFFFFFFFF))
