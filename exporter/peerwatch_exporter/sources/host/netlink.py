"""What all that is asked by netlink has in common: messages, and the attributes in them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/netlink.h.
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
ATTRIBUTE = struct.Struct("=HH")  # length with these four bytes, type
ERROR, DONE = 2, 3
IS_REQUEST = 1
# NLM_F_ROOT and NLM_F_MATCH: all there are.
DUMP = 0x300
# The two upper bits of a type say how the attribute is coded.
_TYPE = 0x3FFF


class GarbledAnswerError(Exception):
    """The kernel's answer is not what its headers describe."""

    error_class = "garbled_answer"


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield types and contents of attributes that stand one after another, padded to 4 bytes.

    Raises
    ------
    GarbledAnswerError
        If one has another length than it says.
    """
    start = 0
    while start + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, start)
        if not ATTRIBUTE.size <= length <= len(data) - start:
            raise GarbledAnswerError(f"An attribute of {length} bytes, {len(data) - start} left.")
        yield kind & _TYPE, data[start + ATTRIBUTE.size : start + length]
        start += length + -length % 4
    if start < len(data):
        raise GarbledAnswerError(f"{len(data) - start} bytes are left behind the attributes.")
