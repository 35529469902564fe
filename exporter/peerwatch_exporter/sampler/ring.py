"""Rows of numbers in shared memory: one process writes, another reads, and neither waits.

A row is a time (monotonic nanoseconds) and one raw value per column; ``MISSING`` where a counter
could not be read. The header says how many rows were ever written. A reader copies rows, checks
the header again, and drops those that may have been overwritten meanwhile.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_exporter.sampler.layout import HEADER_BYTES, WORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerwatch_exporter.sampler.layout import SampledGroup

# No counter is below 0.
MISSING = -1
_LARGEST = 2**63 - 1  # of signed words of 64 bits
# A header is caught half written only for an instant.
_HEADER_ATTEMPTS = 100
# Native layout: the words are stored whole, not byte by byte.
_HEADER = struct.Struct("2q")


class RingError(Exception):
    """The memory does not hold the ring that the layout says."""

    error_class = "sampler_ring"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in the order of time; ``columns`` holds the values of each series."""

    times: Sequence[int]
    columns: Sequence[Sequence[int]]


class RingWriter:
    """Writes the rows of one group.

    Parameters
    ----------
    memory
        The shared memory as a whole, writable.
    group
        The group's place in it.
    """

    def __init__(self, memory: memoryview, group: SampledGroup) -> None:
        part = memory[group.offset : group.offset + group.size]
        self._width = 1 + len(group.series)
        self._capacity = group.capacity
        self._header = part[:HEADER_BYTES]
        self._rows = part[HEADER_BYTES:]
        self._words = self._rows.cast("q")
        self._row = struct.Struct(f"{self._width}q")
        self.written = 0
        self.publish()

    def write(self, time: int, values: Sequence[int]) -> None:
        """Add a row; it is not seen by readers before ``publish``."""
        place = self.written % self._capacity * self._row.size
        try:
            self._row.pack_into(self._rows, place, time, *values)
        except struct.error:
            # A garbled file may hold any number.
            clean = [value if 0 <= value <= _LARGEST else MISSING for value in values]
            self._row.pack_into(self._rows, place, time, *clean)
        self.written += 1

    def publish(self) -> None:
        """Let readers see the rows written so far.

        Called after the pause that follows a row: the processor may otherwise make the header
        visible before the row (ARM does), and a pause orders the two.
        """
        _HEADER.pack_into(self._header, 0, self.written, ~self.written)

    def column(self, number: int, first: int, last: int) -> list[int]:
        """Return a column of rows ``first`` to ``last`` (exclusive), those still there.

        Column 0 holds the times, column 1 the first series.
        """
        first = max(first, last - self._capacity, 0)
        if last <= first:
            return []
        begin, end = first % self._capacity, (last - 1) % self._capacity + 1
        width, words = self._width, self._words
        if begin < end:
            return words[begin * width + number : end * width : width].tolist()
        older = words[begin * width + number :: width].tolist()
        return older + words[number : end * width : width].tolist()


class RingReader:
    """Reads the newest rows of one group from another process.

    The memory is read through its file, not mapped: if the writer cut the file short, a mapping
    would end this process.

    Parameters
    ----------
    descriptor
        File descriptor of the shared memory.
    group
        The group's place in it.
    """

    def __init__(self, descriptor: int, group: SampledGroup) -> None:
        self._descriptor = descriptor
        self._group = group
        self._width = 1 + len(group.series)

    def newest(self, count: int) -> Rows:
        """Return up to the newest ``count`` rows.

        Raises
        ------
        RingError
            If the memory holds no such ring.
        """
        last = self._written()
        first = max(0, last - min(count, self._group.capacity))
        words = memoryview(self._copy(first, last)).cast("q")
        # The row after the last one may be half written: what stood in its place is gone too.
        safe = max(first, self._written() - self._group.capacity + 1)
        words = words[min(safe - first, last - first) * self._width :]
        columns = [words[number :: self._width].tolist() for number in range(self._width)]
        return Rows(columns[0], columns[1:])

    def _written(self) -> int:
        for _ in range(_HEADER_ATTEMPTS):
            raw = os.pread(self._descriptor, HEADER_BYTES, self._group.offset)
            if len(raw) == HEADER_BYTES:
                written, check = _HEADER.unpack(raw)
                if written == ~check and written >= 0:
                    return int(written)
        raise RingError("The sampler's memory holds no ring at the place agreed on.")

    def _copy(self, first: int, last: int) -> bytes:
        capacity, row = self._group.capacity, self._width * WORD_BYTES
        begin, count = first % capacity, last - first
        before_wrap = min(count, capacity - begin)
        start = self._group.offset + HEADER_BYTES
        raw = os.pread(self._descriptor, before_wrap * row, start + begin * row)
        if count > before_wrap:
            raw += os.pread(self._descriptor, (count - before_wrap) * row, start)
        if len(raw) != count * row:
            raise RingError(f"The sampler's memory ends {count * row - len(raw)} bytes early.")
        return raw
