from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.reading.chunk_writer import (
    chunk,
    field,
    frame,
    framed,
    series,
    slow_crc32c,
    xor_chunk,
)
from detector.reading.decoding import block, empty, padded, take
from detector.reading.naive_grid import naive_steps
from peerwatch_detector.reading.decode.checksum import crc32c
from peerwatch_detector.reading.decode.frames import decode_frames
from peerwatch_detector.reading.decode.grid_writer import ROWS, SAMPLES
from peerwatch_detector.reading.decode.status import (
    BAD_CHECKSUM,
    BAD_CHUNK,
    BAD_FRAME,
    HISTOGRAM,
    MORE_BYTES,
    OTHER_CHUNK,
    TOO_LONG,
)
from peerwatch_detector.reading.selection import Grid

GRID = Grid(0, 30_000)
Samples = list[tuple[int, float]]

times = st.lists(st.integers(-40_000, 70_000), unique=True, min_size=1, max_size=50).map(sorted)
values = st.floats(width=64) | st.integers(-(10**15), 10**15).map(float)


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    chosen = draw(times)
    numbers = draw(st.lists(values, min_size=len(chosen), max_size=len(chosen)))
    return list(zip(chosen, numbers, strict=True))


def decode(writer, data, begin, end):
    return decode_frames(writer, data, begin, end, 1 << 20)


def level(found: Samples) -> np.ndarray:
    return np.float32(naive_steps(found, GRID, 5000))


@given(st.binary(max_size=100))
def test_the_checksum_is_that_of_the_slow_version(data: bytes) -> None:
    assert slow_crc32c(data) == crc32c(padded(data), 0, len(data))


def test_the_checksum_of_the_nine_digits_is_the_known_one() -> None:
    assert 0xE3069283 == crc32c(padded(b"123456789"), 0, 9)


@given(samples(), st.integers(1, 50), st.lists(st.integers(0, 2000), max_size=3))
def test_samples_land_on_the_grid_however_they_are_cut(
    found: Samples, part: int, cuts: list[int]
) -> None:
    chunks = [chunk(found[k : k + part]) for k in range(0, len(found), part)]
    labels = {"__name__": "level", "node": "a"}
    # The same series, its chunks in one frame or in one frame each.
    for data in (
        frame(series(labels, chunks)),
        b"".join(frame(series(labels, [piece])) for piece in chunks),
    ):
        places = tuple(min(cut, len(data)) for cut in cuts)
        writer, status, end = take(decode, empty(GRID), data, places)
        assert (MORE_BYTES, len(data), 1) == (status, end, writer.counts[ROWS])
        assert len(found) == writer.counts[SAMPLES]
        got = block(writer, GRID, escaped=False)
        assert (("a", ""),) == got.keys
        np.testing.assert_array_equal(level(found), got.values[0])


def test_many_series_in_one_frame_get_room_as_they_come() -> None:
    all_series = [
        series({"node": f"n{k}", "gpu": str(k % 3)}, [chunk([(k, float(k))])]) for k in range(50)
    ]
    writer, status, _ = take(decode, empty(GRID), frame(*all_series[:49]) + frame(all_series[49]))
    found = block(writer, GRID, escaped=False)
    assert MORE_BYTES == status
    assert [(f"n{k}", str(k % 3)) for k in range(50)] == list(found.keys)
    assert [float(k) for k in range(50)] == [row[np.isfinite(row)][0] for row in found.values]
    assert 50 == found.samples


def test_markers_of_staleness_are_passed_over_and_other_nan_are_not() -> None:
    stale = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
    for value, expected in ((stale, 7.0), (math.nan, math.nan)):
        data = frame(series({"node": "a"}, [chunk([(0, 7.0), (1000, value)])]))
        writer, _, _ = take(decode, empty(GRID), data)
        found = block(writer, GRID, escaped=False).values[0]
        np.testing.assert_array_equal(np.float32([7, expected]), found[:2])


def test_unknown_fields_are_passed_over() -> None:
    extra = field(9, 5) + field(10, b"text") + bytes([11 << 3 | 5, 1, 2, 3, 4])
    extra += bytes([12 << 3 | 1]) + bytes(8)
    encoded = series({"node": "a"}, [chunk([(0, 1.0)]) + extra]) + extra
    writer, status, _ = take(decode, empty(GRID), framed(field(1, encoded) + extra))
    assert (MORE_BYTES, 1) == (status, writer.counts[SAMPLES])


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (frame(series({"node": "a"}, [chunk([(0, 1.0)], encoding=2)])), HISTOGRAM),
        (frame(series({"node": "a"}, [chunk([(0, 1.0)], encoding=6)])), HISTOGRAM),
        (frame(series({"node": "a"}, [chunk([(0, 1.0)], encoding=0)])), OTHER_CHUNK),
        (frame(series({"node": "a"}, [chunk([(0, 1.0)], encoding=4)])), OTHER_CHUNK),
        (bytes([3]) + bytes(4) + b"abc", BAD_CHECKSUM),
        (framed(b"\xff"), BAD_FRAME),
        (framed(b"\x0a\x05ab"), BAD_FRAME),
        (framed(b"\x0b"), BAD_FRAME),
        (bytes([255] * 11), BAD_FRAME),
        (b"\xff\xff\xff\x7f" + bytes(20), TOO_LONG),
        # The labels after a chunk, a count of 2 with one sample, none at all, times that fall.
        (framed(field(1, field(2, chunk([(0, 1.0)])) + field(1, field(1, b"a")))), BAD_FRAME),
        (
            frame(
                series(
                    {},
                    [
                        field(1, 0)
                        + field(2, 9)
                        + field(3, 1)
                        + field(4, b"\0\2" + xor_chunk([(0, 1.0)])[2:])
                    ],
                )
            ),
            BAD_CHUNK,
        ),
        (frame(series({}, [field(3, 1) + field(4, b"\0")])), BAD_CHUNK),
        (
            frame(
                series(
                    {},
                    [field(1, 0) + field(2, 9) + field(3, 1) + field(4, xor_chunk([(0, 1.0)])[:8])],
                )
            ),
            BAD_CHUNK,
        ),
        (
            frame(
                series(
                    {}, [field(1, 5) + field(2, 9) + field(3, 1) + field(4, xor_chunk([(0, 1.0)]))]
                )
            ),
            BAD_CHUNK,
        ),
        (
            frame(
                series(
                    {},
                    [
                        field(1, 0)
                        + field(2, 3)
                        + field(3, 1)
                        + field(4, xor_chunk([(0, 1.0), (4, 1.0)]))
                    ],
                )
            ),
            BAD_CHUNK,
        ),
    ],
    ids=[
        "histogram",
        "histogram_of_start_times",
        "no_encoding",
        "xor2",
        "checksum",
        "bad_tag",
        "cut_field",
        "group",
        "endless_varint",
        "too_long",
        "label_after_chunk",
        "count_too_high",
        "no_count",
        "cut_value",
        "too_early",
        "too_late",
    ],
)
def test_what_is_broken_is_told(data: bytes, status: int) -> None:
    assert status == take(decode, empty(GRID), data)[1]


@given(samples(), st.data())
def test_a_flipped_bit_never_passes_the_checksum(found: Samples, data: st.DataObject) -> None:
    good = frame(series({"node": "a"}, [chunk(found)]))
    place = data.draw(st.integers(0, len(good) * 8 - 1))
    bad = bytearray(good)
    bad[place // 8] ^= 1 << place % 8
    _, status, end = take(decode, empty(GRID), bytes(bad))
    # A longer length waits for bytes that never come: the response then ends within a frame.
    assert status in {BAD_CHECKSUM, BAD_FRAME, TOO_LONG} or (status, end) == (MORE_BYTES, 0)


@given(samples(), st.data())
def test_a_damaged_chunk_under_a_good_checksum_neither_crashes_nor_writes_elsewhere(
    found: Samples, data: st.DataObject
) -> None:
    good = bytearray(field(1, series({"node": "a"}, [chunk(found)])))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for message in (bytes(good), bytes(good[:cut])):
        writer, status, _ = take(decode, empty(GRID), framed(message))
        assert status in {MORE_BYTES, BAD_FRAME, BAD_CHUNK, HISTOGRAM, OTHER_CHUNK}
        assert writer.counts[SAMPLES] <= 65_535 * 9
        assert writer.counts[ROWS] <= len(message)


@given(st.binary(max_size=300))
def test_garbage_never_crashes(data: bytes) -> None:
    assert take(decode, empty(GRID), framed(data))[1] in {
        MORE_BYTES,
        BAD_FRAME,
        BAD_CHUNK,
        HISTOGRAM,
        OTHER_CHUNK,
    }
    take(decode, empty(GRID), data)


def test_a_stream_that_is_cut_anywhere_gives_its_whole_frames_and_asks_for_more() -> None:
    first = frame(series({"node": "a"}, [chunk([(1000, 1.5), (2000, 2.5)])]))
    second = frame(series({"node": "b"}, [chunk([(1000, 3.5)])]))
    data = first + second
    for length in range(len(data) + 1):
        writer = empty(GRID, rows=4)
        status, place = decode(writer, padded(data[:length]), 0, length)
        whole = (length >= len(first)) + (length == len(data))
        assert (MORE_BYTES, [0, len(first), len(data)][whole]) == (status, place)
        assert whole == writer.counts[ROWS]
