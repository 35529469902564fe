"""Writes what Prometheus sends: XOR chunks, messages and frames. Slow and obvious."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from peerwatch_detector.reading.transport.protobuf import varint

Samples = list[tuple[int, float]]


def xor_chunk(samples: Samples) -> bytes:
    """Return the chunk of some samples, at most 65,535."""
    head = len(samples).to_bytes(2, "big")
    if not samples:
        return head
    time, value = samples[0]
    head += varint(time << 1 if time >= 0 else (-time << 1) - 1) + struct.pack(">d", value)
    bits, before = "", as_bits(value)
    delta, borders = 0, None
    for index, (now, number) in enumerate(samples[1:]):
        if index == 0:
            bits += "".join(f"{byte:08b}" for byte in varint(now - time))
        else:
            bits += change_bits(now - time - delta)
        delta, time = now - time, now
        difference, before = before ^ as_bits(number), as_bits(number)
        text, borders = difference_bits(difference, borders)
        bits += text
    bits += "0" * (-len(bits) % 8)
    return head + bytes(int(bits[k : k + 8], 2) for k in range(0, len(bits), 8))


def as_bits(value: float) -> int:
    return int.from_bytes(struct.pack(">d", value), "big")


def change_bits(change: int) -> str:
    if change == 0:
        return "0"
    for prefix, width in (("10", 14), ("110", 17), ("1110", 20)):
        if -(1 << width - 1) + 1 <= change <= 1 << width - 1:
            return prefix + f"{change & (1 << width) - 1:0{width}b}"
    return "1111" + f"{change & (1 << 64) - 1:064b}"


def difference_bits(
    difference: int, borders: tuple[int, int] | None
) -> tuple[str, tuple[int, int] | None]:
    if difference == 0:
        return "0", borders
    leading = min(64 - difference.bit_length(), 31)
    trailing = (difference & -difference).bit_length() - 1
    if borders is not None and leading >= borders[0] and trailing >= borders[1]:
        width = 64 - sum(borders)
        return "10" + f"{difference >> borders[1]:0{width}b}", borders
    width = 64 - leading - trailing
    text = "11" + f"{leading:05b}" + f"{width % 64:06b}" + f"{difference >> trailing:0{width}b}"
    return text, (leading, trailing)


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    return varint(number << 3 | 2) + varint(len(value)) + value


def chunk(samples: Samples, encoding: int = 1) -> bytes:
    first, last = (samples[0][0], samples[-1][0]) if samples else (0, 0)
    return field(1, first) + field(2, last) + field(3, encoding) + field(4, xor_chunk(samples))


def series(labels: Mapping[str, str], chunks: Iterable[bytes]) -> bytes:
    parts = [
        field(1, field(1, name.encode()) + field(2, value.encode()))
        for name, value in labels.items()
    ]
    return b"".join([*parts, *(field(2, chunk_bytes) for chunk_bytes in chunks)])


def frame(*all_series: bytes) -> bytes:
    return framed(b"".join(field(1, series_bytes) for series_bytes in all_series))


def framed(message: bytes) -> bytes:
    return varint(len(message)) + slow_crc32c(message).to_bytes(4, "big") + message


def slow_crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF
