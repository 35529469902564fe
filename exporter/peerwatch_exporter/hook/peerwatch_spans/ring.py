"""The file ``rank-<rank>.spans``: a header, then a ring of records of 24 bytes each.

The file is mapped into memory, so a record is written without a system call, and what was written
survives the death of the process. ``docs/spans.md`` has the format for readers.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
import zlib
from contextlib import suppress
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC = b"PWSPANS1"
# This and the rest of the format stand in docs/spans.md.
HEADER_BYTES = 65536
# Start (monotonic, ns), duration (s), step or sequence number, segment, detail, and the number of
# the record plus one: what stands in a slot was written there if that number belongs to the slot.
RECORD = struct.Struct("<qfIHHI")
# The same 24 bytes with the last three numbers as one, in fewer arguments: segment, detail << 16
# and mark << 32.
pack_record = struct.Struct("<qfIQ").pack_into
STATIC = struct.Struct("<8sIIIiiI")
GUARD = struct.Struct("<IIII")
STATE = struct.Struct("<qqQQqqddIIq")
TOTAL = struct.Struct("<QQ")
GUARD_AT, STATE_AT, TOTALS_AT, NAMES_AT = 32, 48, 128, 1152
MAX_SEGMENTS = 64  # the eight of names.py, a program's 32, and room
# Linux 5.14; mmap has no name for it.
_MADV_POPULATE_WRITE = 23
# 64 memory pages of 4 KiB at a time: few enough for the training loop not to wait for long.
_POPULATE_BYTES = 1 << 18


def places(capacity: int, number: int) -> Iterator[tuple[int, int]]:
    """Yield where records belong, in bytes, and their marks << 32, from that of ``number`` on.

    It is all compiled code, so that no other thread comes between the two. Marks end with 32 bits.

    Parameters
    ----------
    capacity
        Of the ring, in records.
    number
        Of the first record.
    """
    size, first = RECORD.size, number % (1 << 32)
    rest = range(first % capacity * size, capacity * size, size)
    again = chain.from_iterable(repeat(range(0, capacity * size, size)))
    return zip(chain(rest, again), count((first + 1) << 32, 1 << 32), strict=False)


class State(NamedTuple):
    """What changes in the header; times are monotonic nanoseconds unless said otherwise.

    ``unix_offset_ns`` added to a monotonic time makes it Unix time by the host's clock.
    ``clock_offset_ns`` is by how much that clock is ahead of rank 0's at ``clock_reference_ns``,
    rising by ``clock_drift`` seconds per second, known to ``clock_error_seconds``;
    ``clock_source`` is 0 (unknown), 1 (round trips), 2 (this is rank 0) or
    3 (rank 0 is on the same host). ``gpu_since_ns`` is when
    the oldest segment was begun that the GPU has not finished; 0 if there is none.
    """

    unix_offset_ns: int
    updated_ns: int
    written: int
    dropped: int
    clock_reference_ns: int
    clock_offset_ns: int
    clock_drift: float
    clock_error_seconds: float
    clock_source: int
    gpu_segment: int
    gpu_since_ns: int


class RingFile:
    """The file of one rank, mapped for writing; it is there once it was published.

    Parameters
    ----------
    directory, rank, world_size
        Where it stands, and whose it is.
    capacity
        How many records it holds; a power of two.

    Raises
    ------
    OSError
        If it cannot be written, or the space is not there.
    """

    def __init__(self, directory: str, rank: int, world_size: int, capacity: int) -> None:
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - no pathlib in the job's process
        self.path = os.path.join(directory, f"rank-{rank}.spans")  # noqa: PTH118
        self.rank = rank
        self.capacity = capacity
        temporary = os.path.join(  # noqa: PTH118
            directory, f".rank-{rank}.{os.getpid()}.spans.tmp"
        )
        self._temporary: str | None = temporary
        size = HEADER_BYTES + capacity * RECORD.size
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644)
        try:
            # All of it now: a full disk later would kill the process at a mere write to memory.
            os.posix_fallocate(descriptor, 0, size)
            self.buffer = mmap.mmap(descriptor, size)
            self.records = memoryview(self.buffer)[HEADER_BYTES:]
            facts = (HEADER_BYTES, RECORD.size, capacity, rank, world_size, os.getpid())
            STATIC.pack_into(self.buffer, 0, MAGIC, *facts)
        except BaseException:
            os.unlink(temporary)  # noqa: PTH108
            raise
        finally:
            os.close(descriptor)
        self._populate()
        self._generation = 0
        self._names = (0, 0)
        self._segments = 0

    def _populate(self) -> None:
        """Have the pages there, since a fault costs more than all else of a span.

        In parts, between which the training loop gets the interpreter.
        """
        with suppress(OSError):  # an older kernel
            for start in range(0, len(self.buffer), _POPULATE_BYTES):
                length = min(_POPULATE_BYTES, len(self.buffer) - start)
                self.buffer.madvise(_MADV_POPULATE_WRITE, start, length)
                time.sleep(0)

    def name(self, job_id: str, segments: Sequence[str], details: Sequence[object]) -> None:
        """Write what the numbers in records stand for."""
        document = {"job_id": job_id, "segments": segments, "details": details}
        text = json.dumps(document, separators=(",", ":")).encode()
        if len(text) > HEADER_BYTES - NAMES_AT:
            document["details"] = details[:1]
            text = json.dumps(document, separators=(",", ":")).encode()
        self._begin()
        self.buffer[NAMES_AT : NAMES_AT + len(text)] = text
        self._names = len(text), zlib.crc32(text)
        self._segments = len(segments)
        self._end()

    def publish(self, state: State, totals: Sequence[tuple[int, int]]) -> None:
        """Write the state, and of each segment the nanoseconds and the number of its spans.

        Raises
        ------
        OSError
            If the file cannot be put in its place, the first time.
        """
        flat = [number for total in totals for number in total]
        self._begin()
        STATE.pack_into(self.buffer, STATE_AT, *state)
        struct.pack_into(f"<{len(flat)}Q", self.buffer, TOTALS_AT, *flat)
        self._end()
        # Before, a reader would find a file without names.
        if self._temporary is not None:
            os.replace(self._temporary, self.path)  # noqa: PTH105
            self._temporary = None

    def remove(self) -> None:
        """Take the file away if it is still this one."""
        if self._temporary is not None:
            os.unlink(self._temporary)  # noqa: PTH108
            return
        with open(self.path, "rb") as file:  # noqa: PTH123
            owner = STATIC.unpack(file.read(STATIC.size))[6]
        if owner == os.getpid():
            os.unlink(self.path)  # noqa: PTH108

    def _begin(self) -> None:
        """Make readers wait: the generation is odd while the header is being written."""
        self._generation += 1
        self._guard()

    def _end(self) -> None:
        self._generation += 1
        self._guard()

    def _guard(self) -> None:
        guard = (self._generation & 0xFFFFFFFF, *self._names, self._segments)
        GUARD.pack_into(self.buffer, GUARD_AT, *guard)
