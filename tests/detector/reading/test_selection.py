from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_detector.reading import Grid, Matcher, Selection
from peerwatch_detector.reading.decode.block import Block, join_nodes, join_steps
from peerwatch_detector.reading.selection import SelectionPart
from peerwatch_detector.reading.transport.protobuf import read_request, snappy_block, varint

LOAD = Selection("load", "node_load", (Matcher("job_id", "=", 'a"b\\'),))


def test_a_selector_is_quoted() -> None:
    assert 'node_load{job_id="a\\"b\\\\"}' == LOAD.selector


@given(st.lists(st.text("a.b|c(+\\^$[]{}?*-", min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_matcher_of_nodes_matches_them_and_no_others(nodes: list[str]) -> None:
    pattern = LOAD.of_nodes(nodes).matchers[-1].value
    for node in (*nodes, "abc", "a-b", "acb"):
        assert (node in nodes) is bool(re.fullmatch(pattern, node))


@pytest.mark.parametrize(("start", "end", "step"), [(1, 1000, 1000), (0, 1, 1000), (5000, 0, 1000)])
def test_a_grid_lies_on_multiples_of_its_step(start: int, end: int, step: int) -> None:
    with pytest.raises(ValueError, match="Grid"):
        Grid(start, end, step)


def test_a_grid_of_seconds_lies_within_them() -> None:
    assert Grid(2000, 9000) == Grid.of_seconds(1.2, 9.9)
    assert Grid(2000, 9000) == Grid.of_seconds(2, 9)
    assert [2.0, 2.5, 3.0] == Grid.of_seconds(2, 3.4, 0.5).times.tolist()


@given(st.integers(1, 400), st.integers(1, 50))
def test_the_parts_of_a_grid_are_the_grid(steps: int, most: int) -> None:
    grid = Grid(7000, 7000 + (steps - 1) * 1000)
    parts = grid.cut(most)
    assert max(part.steps for part in parts) <= most
    assert grid.times.tolist() == [time for part in parts for time in part.times]


def test_a_piece_is_split_until_nothing_is_left_to_split() -> None:
    pieces = [SelectionPart(LOAD, Grid(0, 250_000), None, ("a", "b", "c"))]
    smallest = []
    while pieces:
        halves = pieces.pop().split()
        if halves is None:
            smallest.append(None)
        else:
            pieces += halves
    assert len(smallest) >= 3 * 251
    assert SelectionPart(LOAD, Grid(0, 0)).split() is None
    assert (
        SelectionPart(Selection("x", "", expression="x"), Grid(0, 0), None, ("a", "b")).split()
        is None
    )


def test_blocks_are_joined_by_steps_and_by_nodes() -> None:
    early = Block(Grid(0, 1000), (("a", ""), ("b", "")), np.float32([[1, 2], [3, 4]]), 4)
    late = Block(Grid(2000, 2000), (("c", ""), ("a", "")), np.float32([[5], [6]]), 2, 1)
    joined = join_steps([early, late])
    assert (Grid(0, 2000), (("a", ""), ("b", ""), ("c", "")), 6, 1) == (
        joined.grid,
        joined.keys,
        joined.samples,
        joined.duplicates,
    )
    nan = np.nan
    np.testing.assert_array_equal([[1, 2, 6], [3, 4, nan], [nan, nan, 5]], joined.values)
    other = Block(Grid(0, 1000), (("d", ""),), np.float32([[7, 8]]), 2)
    by_nodes = join_nodes([early, other])
    assert (("a", ""), ("b", ""), ("d", "")) == by_nodes.keys
    np.testing.assert_array_equal([[1, 2], [3, 4], [7, 8]], by_nodes.values)


def unpacked(data: bytes) -> bytes:
    """Undo snappy's literals."""
    length, at = 0, 0
    while True:
        byte = data[at]
        length |= (byte & 127) << 7 * at
        at += 1
        if byte < 128:
            break
    found = b""
    while at < len(data):
        assert 61 << 2 == data[at]
        size = int.from_bytes(data[at + 1 : at + 3], "little") + 1
        found += data[at + 3 : at + 3 + size]
        at += 3 + size
    assert length == len(found)
    return found


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_a_snappy_block_holds_its_data(size: int) -> None:
    data = bytes(k % 251 for k in range(size))
    assert data == unpacked(snappy_block(data))


def test_a_read_request_is_the_message_of_the_protocol() -> None:
    request = unpacked(read_request([Matcher("a", "=~", "b")], 5, -1))
    # Query 1 {start 1: 5, end 2: -1, matcher 3 {type 1: 2, name 2: a, value 3: b}}, type 2: 1.
    matcher = bytes([0x08, 2, 0x12, 1, ord("a"), 0x1A, 1, ord("b")])
    query = bytes([0x08, 5, 0x10]) + b"\xff" * 9 + b"\x01" + bytes([0x1A, len(matcher)]) + matcher
    assert bytes([0x0A, len(query)]) + query + bytes([0x10, 1]) == request
    assert b"\x80\x80\x01" == varint(1 << 14)


def test_series_that_tell_no_job_are_asked_for_by_node() -> None:
    power = Selection("power", "fast_gpu_power_watts", by_node=True)
    grid = Grid(0, 250_000)

    whole = SelectionPart(power, grid, None, ("gpu.a", "b"))

    assert r'fast_gpu_power_watts{node=~"gpu\\.a|b"}' == whole.asked.selector
    assert 'fast_gpu_power_watts{node=~"b"}' == SelectionPart(power, grid, ("b",)).asked.selector
    assert "load{}" == SelectionPart(Selection("load", "load"), grid, None, ("a",)).asked.selector
