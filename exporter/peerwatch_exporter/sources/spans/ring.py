"""The file of one rank's spans: what its header says, and the spans in its ring.

``hook/peerwatch_spans/ring.py`` writes it, through a mapping of its memory: a reader may come in
the middle of that. ``docs/spans.md`` has the format.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# The format stands in docs/spans.md; limits are 16 times the header and 8 times the usual ring.
MAGIC = b"PWSPANS1"
RECORD = struct.Struct("<qfIHHI")
_STATIC = struct.Struct("<8sIIIiiI")
_GUARD = struct.Struct("<IIII")
_STATE = struct.Struct("<qqQQqqddIIq")
_TOTAL = struct.Struct("<QQ")
_GUARD_AT, _STATE_AT, _TOTALS_AT, _NAMES_AT = 32, 48, 128, 1152
_MAX_SEGMENTS = 64
_LARGEST_HEADER, _LARGEST_CAPACITY = 1 << 20, 1 << 21
_LONGEST_NAME, _LONGEST_JOB_ID = 64, 128
# A writer needs microseconds for its header; one that died in the middle never ends.
_TRIES = 5
# Bit 15 of the segment.
_ON_GPU = 0x8000
# Slots that may be under the writer's hand while the ring is being read: chosen, half a second of
# spans at 437 a second.
_MARGIN = 256
# Longer than any segment lasts (a week), clocks drift by less, and differ by less than three years:
# what is beyond was not meant.
_LONGEST_SECONDS, _MOST_DRIFT = 7 * 86400.0, 0.01
_FARTHEST_SECONDS = 1e8
CLOCK_SOURCES = ("unknown", "round_trips", "rank_0", "same_host")


class GarbledSpansError(ValueError):
    """The file is not what a rank writes; the message says in what."""


class Detail(NamedTuple):
    """What a collective's span says besides its times."""

    group: str
    collective: str
    peer: int | None


class Span(NamedTuple):
    """One span; ``start`` is Unix time by the rank's host clock, in seconds."""

    segment: str
    start: float
    duration: float
    value: int
    detail: Detail | None
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class SegmentTotal:
    """What a rank spent in a segment since it began."""

    segment: str
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how much the host's clock is ahead of rank 0's.

    Parameters
    ----------
    reference
        The host's Unix time at which ``seconds`` was so.
    seconds, drift
        The offset then, and by how much it rises per second.
    error_seconds
        How far off it may be.
    source
        ``round_trips``, ``rank_0`` where this is rank 0, ``same_host`` where rank 0 runs here too.
    """

    reference: float
    seconds: float
    drift: float
    error_seconds: float
    source: str

    def at(self, time: float) -> float:
        """Return the offset in seconds at a Unix time by the host's clock."""
        return self.seconds + self.drift * (time - self.reference)


@dataclass(frozen=True, slots=True)
class SpanHeader:
    """What a rank says about itself and its ring; times are Unix times by the host's clock.

    Parameters
    ----------
    rank, world_size, pid, job_id
        Whose spans these are; the job id is empty where the environment named none.
    updated
        When it was written last.
    written, dropped
        How many spans were written into the ring, and how many found no place anywhere.
    totals
        Seconds and number of spans of each segment.
    details
        What a record's number of a detail stands for.
    clock
        The host's clock against rank 0's; None while it is not known.
    gpu_segment, gpu_since
        The oldest segment that the GPU has not finished, and when it was begun; None if there is
        none.
    capacity, header_bytes, unix_offset_ns
        How the records lie, and what makes their times Unix times.
    """

    rank: int
    world_size: int
    pid: int
    job_id: str
    updated: float
    written: int
    dropped: int
    totals: tuple[SegmentTotal, ...]
    details: tuple[Detail | None, ...]
    clock: ClockOffset | None
    gpu_segment: str | None
    gpu_since: float | None
    capacity: int
    header_bytes: int
    unix_offset_ns: int


def read_header(path: Path, rank: int) -> SpanHeader:
    """Return what stands at the head of a rank's file.

    Raises
    ------
    GarbledSpansError
        If it is not such a file, or damaged.
    OSError
        If it cannot be read.
    """
    descriptor = _open(path)
    try:
        return _header(descriptor, rank)
    finally:
        os.close(descriptor)


def read_spans(
    path: Path, rank: int, begin: float, end: float
) -> tuple[SpanHeader, Iterator[Span]]:
    """Return the head of a rank's file, and its spans in the order in which they ended.

    Parameters
    ----------
    path, rank
        The file, and the rank of its name.
    begin, end
        Only spans that were under way then: Unix times by rank 0's clock if the header knows it,
        else by the host's.

    Raises
    ------
    GarbledSpansError
        If it is not such a file, or damaged.
    OSError
        If it cannot be read.
    """
    descriptor = _open(path)
    try:
        header = _header(descriptor, rank)
        ring = _ring(descriptor, header)
        # Once more: a segment that was named meanwhile is in the ring already.
        header = _header(descriptor, rank)
    finally:
        os.close(descriptor)
    return header, _spans(header, ring, begin, end)


def _ring(descriptor: int, header: SpanHeader) -> bytearray:
    ring = bytearray(header.capacity * RECORD.size)
    view = memoryview(ring)
    done = 0
    while done < len(ring):
        count = os.preadv(descriptor, [view[done:]], header.header_bytes + done)
        if not count:  # cut off meanwhile
            break
        done += count
    return ring


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GarbledSpansError("is no regular file")
    return descriptor


def _header(descriptor: int, rank: int) -> SpanHeader:
    head, names = _consistent(descriptor)
    _, header_bytes, _, capacity, own_rank, world_size, pid = _STATIC.unpack_from(head)
    if own_rank != rank:
        raise GarbledSpansError(f"is rank {own_rank}'s by its content and rank {rank}'s by name")
    segments, details, job_id = _names(names)
    (
        unix_offset_ns,
        updated_ns,
        written,
        dropped,
        *clock,
        gpu_segment,
        gpu_since_ns,
    ) = _STATE.unpack_from(head, _STATE_AT)
    totals = []
    for number, segment in enumerate(segments):
        nanoseconds, count = _TOTAL.unpack_from(head, _TOTALS_AT + number * _TOTAL.size)
        totals.append(SegmentTotal(segment, nanoseconds / 1e9, count))
    pending = gpu_since_ns > 0 and gpu_segment < len(segments)
    return SpanHeader(
        rank=rank,
        world_size=world_size,
        pid=pid,
        job_id=job_id,
        updated=(updated_ns + unix_offset_ns) / 1e9,
        written=written,
        dropped=dropped,
        totals=tuple(totals),
        details=details,
        clock=_clock(unix_offset_ns, *clock),
        gpu_segment=segments[gpu_segment] if pending else None,
        gpu_since=(gpu_since_ns + unix_offset_ns) / 1e9 if pending else None,
        capacity=capacity,
        header_bytes=header_bytes,
        unix_offset_ns=unix_offset_ns,
    )


def _consistent(descriptor: int) -> tuple[bytes, bytes]:
    """Return the fixed part of the header and the names, as they stood at one moment."""
    head = names = b""
    for _ in range(_TRIES):
        head = os.pread(descriptor, _NAMES_AT, 0)
        size = os.fstat(descriptor).st_size
        _check_layout(head, size)
        generation, names_bytes, names_crc, _ = _GUARD.unpack_from(head, _GUARD_AT)
        (header_bytes,) = struct.unpack_from("<I", head, 8)
        if names_bytes > header_bytes - _NAMES_AT:
            raise GarbledSpansError(f"has names of {names_bytes} bytes, which no header holds")
        names = os.pread(descriptor, names_bytes, _NAMES_AT)
        after = _GUARD.unpack_from(os.pread(descriptor, _GUARD.size, _GUARD_AT))
        if generation % 2 == 0 and after[0] == generation:
            break
    if not names:
        raise GarbledSpansError("names no segments")
    if zlib.crc32(names) != names_crc:
        raise GarbledSpansError("has names that do not match their checksum")
    return head, names


def _check_layout(head: bytes, size: int) -> None:
    if len(head) < _NAMES_AT:
        raise GarbledSpansError(f"is cut off: {size} bytes, a header has more")
    magic, header_bytes, record_bytes, capacity, *_ = _STATIC.unpack_from(head)
    if magic != MAGIC:
        raise GarbledSpansError(f"begins with {magic!r}, not with {MAGIC!r}")
    fits = _NAMES_AT < header_bytes <= _LARGEST_HEADER and record_bytes == RECORD.size
    if not fits or not 0 < capacity <= _LARGEST_CAPACITY or capacity & (capacity - 1):
        raise GarbledSpansError(
            f"has a header of {header_bytes} bytes and {capacity} records of {record_bytes} bytes"
        )
    needed = header_bytes + capacity * record_bytes
    if size < needed:
        raise GarbledSpansError(f"is cut off: {size} of {needed} bytes")


def _names(text: bytes) -> tuple[list[str], tuple[Detail | None, ...], str]:
    try:
        document: Any = json.loads(text)
        segments = [str(name)[:_LONGEST_NAME] for name in document["segments"]]
        details = tuple(
            None if entry is None else Detail(str(entry[0]), str(entry[1]), _peer(entry[2]))
            for entry in document["details"]
        )
        job_id = str(document["job_id"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise GarbledSpansError(f"has garbled names: {error!r:.80}") from error
    if len(segments) > _MAX_SEGMENTS or len(job_id) > _LONGEST_JOB_ID:
        raise GarbledSpansError(
            f"names {len(segments)} segments (at most {_MAX_SEGMENTS}) and a job id of "
            f"{len(job_id)} characters (at most {_LONGEST_JOB_ID})"
        )
    return segments, details, job_id


def _peer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _clock(
    unix_offset_ns: int,
    reference_ns: int,
    offset_ns: int,
    drift: float,
    error_seconds: float,
    source: int,
) -> ClockOffset | None:
    if not 0 < source < len(CLOCK_SOURCES):
        return None
    finite = math.isfinite(drift) and math.isfinite(error_seconds)
    if not finite or abs(drift) > _MOST_DRIFT or abs(offset_ns) > _FARTHEST_SECONDS * 1e9:
        raise GarbledSpansError(
            f"has a clock {offset_ns / 1e9:g} s away that drifts by {drift:g} s/s"
        )
    reference = (reference_ns + unix_offset_ns) / 1e9
    return ClockOffset(reference, offset_ns / 1e9, drift, error_seconds, CLOCK_SOURCES[source])


def _spans(header: SpanHeader, ring: bytearray, begin: float, end: float) -> Iterator[Span]:
    """Yield the spans by the order of their records; what was being written is left out."""
    shift = 0.0 if header.clock is None else header.clock.at(begin)
    begin_ns = int((begin + shift) * 1e9) - header.unix_offset_ns
    end_ns = int((end + shift) * 1e9) - header.unix_offset_ns
    mask = header.capacity - 1
    newest = header.written - 1
    latest = 1 << 31
    # Age and slot in one number each: a ring has hundreds of thousands of records.
    chosen: list[int] = []
    for slot, record in enumerate(RECORD.iter_unpack(ring)):
        mark = record[5]
        if not mark or (mark - 1) & mask != slot:
            continue
        # Marks are kept to 32 bits. Some records are newer than the header, none by much.
        age = (newest - (mark - 1) + (1 << 31)) % (1 << 32) - (1 << 31)
        latest = min(latest, age)
        if record[0] <= end_ns and record[0] + record[1] * 1e9 >= begin_ns:
            chosen.append(age * header.capacity + slot)
    chosen.sort(reverse=True)
    # The oldest slots may be under the writer's hand.
    oldest = (latest + header.capacity - _MARGIN) * header.capacity
    records = (
        RECORD.unpack_from(ring, (place & mask) * RECORD.size) for place in chosen if place < oldest
    )
    return _named(header, records)


def _named(
    header: SpanHeader, records: Iterable[tuple[int, float, int, int, int, int]]
) -> Iterator[Span]:
    segments = [total.segment for total in header.totals]
    for start_ns, duration, value, segment, detail, _ in records:
        known = segment & ~_ON_GPU
        if known < len(segments) and 0 <= duration < _LONGEST_SECONDS:
            yield Span(
                segments[known],
                (start_ns + header.unix_offset_ns) / 1e9,
                duration,
                value,
                header.details[detail] if detail < len(header.details) else None,
                bool(segment & _ON_GPU),
            )
