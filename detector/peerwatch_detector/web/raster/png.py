"""Writes an array of pixels as PNG (ISO/IEC 15948): eight bits a colour, no transparency."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Of the chunk IHDR (PNG specification, 11.2.1): bits per sample, and RGB without alpha.
_DEPTH, _TRUE_COLOUR = 8, 2


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a picture as a file.

    Parameters
    ----------
    pixels
        Red, green and blue, shape (height, width, 3).
    """
    height, width, _ = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, _DEPTH, _TRUE_COLOUR, 0, 0, 0)
    # Each line begins with its filter: 0, the bytes as they are.
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = pixels.reshape(height, 3 * width)
    body = zlib.compress(lines.tobytes(), 6)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
