"""The ring: what was written is what is read, whatever happens in between."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.catalog.sampled_counters import COUNTERS
from peerwatch_exporter.sampler.layout import (
    MemoryLimitError,
    RingLayout,
    SampledGroup,
    SampledSeries,
    lay_out,
)
from peerwatch_exporter.sampler.ring import MISSING, RingError, RingReader, RingWriter

SERIES = tuple(SampledSeries(COUNTERS[name], "mlx5_0", "1") for name in ("cnp_sent", "cnp_handled"))


class Pair:
    """A writer and a reader of one ring, the ring standing behind another one."""

    def __init__(self, capacity, directory):
        self.group = SampledGroup(0.001, SERIES, capacity=capacity, offset=48)
        self.memory = bytearray(48 + self.group.size)
        self.writer = RingWriter(memoryview(self.memory), self.group)
        self.path = directory / "memory"
        self.path.write_bytes(b"")
        self.reader = RingReader(os.open(self.path, os.O_RDONLY), self.group)

    def write(self, first, last):
        for number in range(first, last):
            self.writer.write(number, (number * 10, number * 100))
            self.writer.publish()
        self.path.write_bytes(self.memory)


def row_numbers(rows):
    assert [number * 10 for number in rows.times] == list(rows.columns[0])
    assert [number * 100 for number in rows.times] == list(rows.columns[1])
    return list(rows.times)


@pytest.fixture
def pair(tmp_path):
    return Pair(7, tmp_path)


@pytest.mark.parametrize("written", [0, 1, 6, 7, 8, 20, 21, 22])
def test_reader_has_the_newest_rows_in_order(pair, written):
    pair.write(0, written)

    # One less than the capacity: the oldest row's place is where the next one is being written.
    kept = list(range(max(0, written - 6), written))
    assert kept == row_numbers(pair.reader.newest(100))
    assert kept[-3:] == row_numbers(pair.reader.newest(3))


def test_row_is_not_seen_before_it_is_published(pair):
    pair.write(0, 3)
    pair.writer.write(3, (30, 300))
    pair.path.write_bytes(pair.memory)

    assert [0, 1, 2] == row_numbers(pair.reader.newest(100))


@pytest.mark.parametrize("meanwhile", [0, 1, 3, 6, 7, 30])
def test_rows_overwritten_while_they_are_copied_are_left_out(pair, meanwhile):
    pair.write(0, 20)
    copy = pair.reader._copy

    def slow_copy(first, last):
        pair.write(20, 20 + meanwhile)
        return copy(first, last)

    pair.reader._copy = slow_copy

    assert list(range(14 + meanwhile, 20)) == row_numbers(pair.reader.newest(100))


@pytest.mark.parametrize("value", [-5, 2**63, 10**30])
def test_value_that_is_no_counter_is_missing_and_its_row_stays(pair, value):
    pair.writer.write(1, (value, 7))

    assert [MISSING if value > 0 else value] == pair.writer.column(1, 0, 1)
    assert [7] == pair.writer.column(2, 0, 1)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 12))
def test_writer_gives_the_columns_that_are_still_there(first, last, capacity):
    group = SampledGroup(0.001, SERIES, capacity=capacity)
    writer = RingWriter(memoryview(bytearray(group.size)), group)
    for number in range(last):
        writer.write(number, (number * 10, number * 100))

    kept = list(range(max(first, last - capacity), last))
    assert kept == writer.column(0, first, last)
    assert [number * 100 for number in kept] == writer.column(2, first, last)


@given(st.binary(max_size=400), st.integers(0, 200), st.integers(0, 50))
def test_reader_of_garbage_says_so(tmp_path_factory, content, written, capacity):
    path = tmp_path_factory.mktemp("ring") / "memory"
    header = written.to_bytes(8, "little") + (~written).to_bytes(8, "little", signed=True)
    for head in (b"", header):
        path.write_bytes(head + content)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            rows = RingReader(descriptor, SampledGroup(0.001, SERIES, capacity + 1)).newest(1000)
            assert len(rows.times) == len(rows.columns[0]) <= capacity
        except RingError:
            assert len(content) < 416
        finally:
            os.close(descriptor)


def test_memory_cut_short_is_an_error_and_not_the_end(pair):
    pair.write(0, 20)
    os.truncate(pair.path, 100)

    with pytest.raises(RingError, match="ends"):
        pair.reader.newest(7)


def test_layout_survives_its_way_to_the_other_process():
    fast = SampledGroup(0.001, (SampledSeries(COUNTERS["transmit_bytes"], "mlx5_0", "1", 5e10),))
    layout = lay_out([fast, SampledGroup(0.01, SERIES)], 15, 15)

    assert layout == RingLayout.from_data(layout.to_data())
    assert layout.groups[0].size == layout.groups[1].offset
    assert 15 / 0.001 < layout.groups[0].capacity < 18 / 0.001
    assert layout.groups[1].offset + layout.groups[1].size == layout.size


def test_history_that_does_not_fit_is_refused_with_what_to_do():
    groups = [SampledGroup(0.001, SERIES * 4) for _ in range(128)]

    with pytest.raises(MemoryLimitError, match=r"1024 counters need \d+ MiB, more than 64 MiB"):
        lay_out(groups, 15, 15)
