"""Noise that every process of a simulated node sees alike."""

from __future__ import annotations

import zlib


def noise(seed: int, *key: object) -> float:
    """Return a number from -1 to 1 that only the arguments decide, in every process alike."""
    text = f"{seed}/{'/'.join(map(str, key))}"
    return zlib.crc32(text.encode()) / 2**31 - 1
