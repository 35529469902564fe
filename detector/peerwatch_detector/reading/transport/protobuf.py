"""The few messages of the remote-read protocol that are written, and the snappy block around them.

Field numbers are those of ``prompb/remote.proto`` and ``prompb/types.proto`` in
prometheus/prometheus; the wire format is protobuf's (protobuf.dev, "Encoding").
"""

from __future__ import annotations

from collections.abc import Sequence

from peerwatch_detector.reading.selection import Matcher, Operator

# LabelMatcher.Type of prompb/types.proto, ReadRequest.ResponseType of prompb/remote.proto.
_MATCHER_TYPES: dict[Operator, int] = {"=": 0, "!=": 1, "=~": 2, "!~": 3}
_STREAMED_XOR_CHUNKS = 1
# The longest literal that a snappy tag with two bytes of length can hold.
_LITERAL = 1 << 16


def read_request(matchers: Sequence[Matcher], start: int, end: int) -> bytes:
    """Return a ``ReadRequest`` for one range, answered in streamed chunks, as snappy wants it.

    Parameters
    ----------
    matchers
        The series; the name of the metric is the label ``__name__``.
    start, end
        Milliseconds since 1970, both included.
    """
    query = (
        _integer(1, start) + _integer(2, end) + b"".join(_matcher(matcher) for matcher in matchers)
    )
    return snappy_block(_bytes(1, query) + _integer(2, _STREAMED_XOR_CHUNKS))


def _matcher(matcher: Matcher) -> bytes:
    kind = _integer(1, _MATCHER_TYPES[matcher.operator])
    name, value = matcher.label.encode(), matcher.value.encode()
    return _bytes(3, kind + _bytes(2, name) + _bytes(3, value))


def _integer(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Return an unsigned integer in groups of seven bits, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def snappy_block(data: bytes) -> bytes:
    """Return ``data`` as a snappy block of literals: valid, and not smaller.

    Requests are a few hundred bytes, so compressing them would gain nothing
    (google/snappy, ``format_description.txt``, section 2.1: tag 61 is a literal with two bytes of
    length).
    """
    parts = [varint(len(data))]
    for begin in range(0, len(data), _LITERAL):
        part = data[begin : begin + _LITERAL]
        parts += [bytes([61 << 2]), (len(part) - 1).to_bytes(2, "little"), part]
    return b"".join(parts)
