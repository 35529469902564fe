"""The ring against a dictionary, and the follower against a whole read."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detector.reading.naive_grid import naive_steps
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import (
    Block,
    Follower,
    Grid,
    GridRing,
    Reading,
    ReadingSettings,
    ReadingStatistics,
    Selection,
)
from peerwatch_detector.reading.transport.envelope import Annotations
from peerwatch_detector.reading.transport.request import RangeResult

NODES = ("a", "b", "c", "d")
CAPACITY = 10

writes = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 14),
        st.lists(st.sampled_from(NODES), unique=True),
        st.none() | st.sets(st.sampled_from(NODES)),
    ),
    max_size=8,
)


def block_of(keys: Sequence[tuple[str, str]], grid: Grid, salt: int) -> Block:
    count = len(keys) * grid.steps
    values = (np.arange(count, dtype=np.float32) + 1000 * salt).reshape(len(keys), grid.steps)
    values[values % 7 == 0] = np.nan
    return Block(grid, tuple(keys), values)


@given(writes)
def test_the_ring_holds_the_newest_steps_of_the_nodes_that_stayed(
    found: list[tuple[int, int, list[str], set[str] | None]],
) -> None:
    ring, naive = GridRing(CAPACITY), {}
    newest = None
    for salt, (first, length, nodes, kept) in enumerate(found):
        grid = Grid(first * 1000, (first + length - 1) * 1000)
        written = block_of([(node, "") for node in nodes], grid, salt)
        ring.write(written)
        last = first + length - 1
        newest = last if newest is None else max(newest, last)
        for (node, _), row in zip(written.keys, written.values, strict=True):
            naive |= {(node, first + k): value for k, value in enumerate(row)}
        naive = {key: value for key, value in naive.items() if key[1] > newest - CAPACITY}
        if kept is not None:
            ring.keep(kept)
            naive = {key: value for key, value in naive.items() if key[0] in kept}
    frame = ring.frame("j", "m", NODES, Grid(0, 80_000))
    expected = [[naive.get((node, step), np.nan) for step in range(81)] for node in NODES]
    np.testing.assert_array_equal(np.float32(expected), frame.values)
    np.testing.assert_array_equal(np.arange(81.0), frame.times)


releases = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 40), st.integers(0, 14)), min_size=1, max_size=12
)


@given(releases)
def test_what_is_needed_is_held_whatever_was_released(found: list[tuple[int, int, int]]) -> None:
    """Each round brings some new steps, and then lets go of all but the last few."""
    keys = [(node, gpu) for gpu in ("0", "1") for node in NODES]
    small, whole = GridRing(CAPACITY), GridRing(CAPACITY)
    newest, needed = 0, 0
    for salt, (length, room, distance) in enumerate(found):
        grid = Grid((newest + 1) * 1000, (newest + length) * 1000)
        newest += length
        for ring in (small, whole):
            ring.write(block_of(keys, grid, salt), NODES)
        shown = Grid(max(needed, newest - CAPACITY + 1) * 1000, newest * 1000)
        expected = whole.frame("j", "m", NODES, shown)
        for lent in (False, True):
            given = small.frame("j", "m", NODES, shown, lent=lent)
            np.testing.assert_array_equal(expected.gpu_values, given.gpu_values)
            np.testing.assert_array_equal(expected.values, given.values)
        needed = max(needed, newest - distance)
        small.release(needed, room)
        assert small.steps <= CAPACITY
        assert small.resident_bytes == 4 * len(keys) * small.steps


ALL_KEYS = [(node, gpu) for node in NODES for gpu in ("", "0", "1", "10")]
cycles = st.lists(
    st.tuples(
        st.integers(-3, 14),
        st.lists(st.sampled_from(ALL_KEYS), unique=True),
        st.sets(st.sampled_from(NODES)).map(lambda nodes: tuple(sorted(nodes))),
    ),
    min_size=1,
    max_size=10,
)


# The only node with GPU 10 leaves: nobody has one any more.
@example(
    [
        (0, [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1"), ("b", "10")], ("a", "b")),
        (1, [("a", "0"), ("a", "1")], ("a",)),
    ]
)
@given(cycles)
def test_knowing_the_nodes_changes_no_frame(
    found: list[tuple[int, list[tuple[str, str]], tuple[str, ...]]],
) -> None:
    informed, uninformed, newest = GridRing(CAPACITY), GridRing(CAPACITY), 20
    for salt, (ahead, keys, nodes) in enumerate(found):
        newest += ahead
        block = block_of(keys, Grid((newest - CAPACITY + 1) * 1000, newest * 1000), salt)
        informed.write(block, nodes)
        uninformed.write(block)
        for ring in (informed, uninformed):
            ring.keep(nodes)
        assert (informed.rows > 0) == (uninformed.rows > 0)
        grid = Grid((newest - CAPACITY + 1) * 1000, newest * 1000)
        frame = informed.frame("j", "m", nodes, grid, lent=True)
        expected = uninformed.frame("j", "m", nodes, grid)
        assert frame.gpus == expected.gpus
        np.testing.assert_array_equal(expected.values, frame.values)
        np.testing.assert_array_equal(
            [] if expected.gpu_values is None else expected.gpu_values,
            [] if frame.gpu_values is None else frame.gpu_values,
        )


def test_memory_that_is_too_much_is_given_back_once_it_is_not_needed() -> None:
    ring, grid = GridRing(1000), Grid(0, 999_000)
    ring.write(block_of([("a", "0"), ("a", "1")], grid, 1), ("a",))
    ring.release(990, 10_000)
    assert 1000 == ring.steps
    ring.release(990, 200)
    assert 100 == ring.steps
    ring.release(990, 0)
    assert 10 == ring.steps
    assert 2 * 10 * 4 == ring.resident_bytes
    # A pause: what is needed and what is new together.
    ring.write(block_of([("a", "0"), ("a", "1")], Grid(1_000_000, 1_019_000), 2))
    assert 30 == ring.steps


@pytest.mark.parametrize("keys", ["abcde", "cabed", "edca"])
def test_the_first_read_is_evaluated_where_it_lies(keys: str) -> None:
    ring, grid, nodes = GridRing(CAPACITY), Grid(3000, 12_000), tuple("abcde")
    ring.write(block_of([(node, "") for node in keys], grid, 1), nodes)
    copied = ring.frame("j", "m", nodes, grid)
    lent, again = (ring.frame("j", "m", nodes, grid, lent=True) for _ in range(2))
    np.testing.assert_array_equal(copied.values, lent.values)
    assert np.shares_memory(lent.values, again.values)
    assert not np.shares_memory(copied.values, lent.values)
    assert 5 * CAPACITY * 4 == ring.resident_bytes


def test_a_node_that_is_not_of_the_job_takes_no_room() -> None:
    ring, grid = GridRing(CAPACITY), Grid(0, 9000)
    ring.write(block_of([("a", ""), ("left", ""), ("b", "")], grid, 1), ("a", "b"))
    assert 2 == ring.rows
    assert 2 * CAPACITY * 4 == ring.resident_bytes
    ring.write(block_of([("left", "")], Grid(10_000, 11_000), 2), ("a", "b"))
    ring.keep(("a", "b"))
    frame = ring.frame("j", "m", ("a", "b"), grid)
    expected = block_of([("a", ""), ("left", ""), ("b", "")], grid, 1).values[[0, 2], 2:]
    np.testing.assert_array_equal(expected, frame.values[:, 2:])


def test_gpus_that_few_nodes_have_take_no_room_on_the_others() -> None:
    keys = [(f"n{node}", "0") for node in range(8)] + [("n0", f"mig-{part}") for part in range(8)]
    ring, grid = GridRing(CAPACITY), Grid(0, 9000)
    ring.write(block_of(keys, grid, 1), tuple(f"n{node}" for node in range(8)))
    assert len(keys) == ring.rows
    lent = ring.frame("j", "m", tuple(f"n{node}" for node in range(8)), grid, lent=True)
    assert (8, 9, CAPACITY) == np.shape(lent.gpu_values)
    assert len(keys) == np.isfinite(lent.gpu_values).any(axis=2).sum()


def test_rows_of_nodes_that_left_are_used_again() -> None:
    ring, grid = GridRing(CAPACITY), Grid(0, 9000)
    for round_ in range(50):
        nodes = [f"{round_}-{k}" for k in range(20)]
        ring.write(block_of([(node, "") for node in nodes], grid, round_))
        ring.keep(nodes)
    # The old and the new ones stand beside each other until the old are dropped.
    assert 40 * CAPACITY * 4 == ring.resident_bytes
    assert not np.isnan(ring.frame("j", "m", nodes, grid).values).all(axis=1).any()


def test_a_frame_per_gpu_has_the_gpus_in_order_and_their_mean() -> None:
    grid = Grid(0, 1000)
    keys = [("a", "10"), ("a", "2"), ("b", "2")]
    ring = GridRing(CAPACITY)
    ring.write(Block(grid, tuple(keys), np.float32([[1, 2], [3, 6], [5, np.nan]])))
    frame = ring.frame("j", "m", ("a", "b", "c"), grid)
    assert ("2", "10") == frame.gpus
    nan = np.nan
    np.testing.assert_array_equal(
        [[[3, 6], [1, 2]], [[5, nan], [nan, nan]], [[nan, nan], [nan, nan]]], frame.gpu_values
    )
    np.testing.assert_array_equal([[2, 4], [5, nan], [nan, nan]], frame.values)


def test_a_block_of_other_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="500 ms in a ring of 1000"):
        GridRing(CAPACITY).write(block_of([("a", "")], Grid(0, 1000, 500), 0))


class Store:
    """Samples that are there from a moment on, read onto the grid by slow code."""

    def __init__(self) -> None:
        self.statistics = ReadingStatistics()
        self.samples: dict[str, list[tuple[int, float]]] = {}
        self.broken: set[str] = set()
        self.grids: list[tuple[tuple[str, ...], Grid]] = []
        self.deadlines: list[float] = []

    def read(
        self,
        selections: Sequence[Selection],
        grid: Grid,
        nodes: Sequence[str] = (),
        deadline: float = math.inf,
    ) -> list[Reading]:
        self.grids.append((tuple(selection.metric for selection in selections), grid))
        self.deadlines.append(deadline)
        return [
            Reading(selection, self._outcome(selection, grid), "query") for selection in selections
        ]

    def _outcome(self, selection: Selection, grid: Grid) -> RangeResult | ReadError:
        if selection.metric in self.broken:
            return ReadError("timeout", "slow")
        rows = [naive_steps(recorded, grid, 5000) for recorded in self.samples.values()]
        keys = tuple((node, "") for node in self.samples)
        values = np.float32(rows).reshape(len(keys), grid.steps)
        return RangeResult(Block(grid, keys, values), Annotations(), 0)


def follow(store: Store, **settings: float) -> Follower:
    chosen = ReadingSettings("http://x", **{"overlap_seconds": 5.0, **settings})  # type: ignore[arg-type]
    return Follower("j", store, [Selection("m", "m"), Selection("n", "n")], 60, chosen)


def test_only_what_is_new_is_read_and_late_samples_are_taken_in() -> None:
    store = Store()
    store.samples["a"] = [(second * 1000, float(second)) for second in range(96)]
    follower = follow(store)
    follower.update(["a"], 100.9)
    assert [(("m", "n"), Grid(38_000, 98_000))] == store.grids
    # Late: seconds 96 to 98 come after they were asked for.
    store.samples["a"] += [(second * 1000, float(second)) for second in range(96, 106)]
    follower.update(["a"], 107.0)
    assert (("m", "n"), Grid(93_000, 105_000)) == store.grids[1]
    frame = follower.frame("m", ["a"], 45, 105)
    np.testing.assert_array_equal([np.arange(45.0, 106)], frame.values)


def test_a_metric_that_failed_is_read_from_where_it_was() -> None:
    store = Store()
    store.samples["a"] = [(second * 1000, float(second)) for second in range(200)]
    follower = follow(store)
    follower.update(["a"], 100)
    store.broken = {"n"}
    errors = follower.update(["a"], 110)
    assert errors["m"] is None
    assert isinstance(errors["n"], ReadError)
    assert np.isnan(follower.frame("n", ["a"], 99, 108).values).all()
    store.broken = set()
    follower.update(["a"], 120)
    assert [(("m",), Grid(103_000, 118_000)), (("n",), Grid(93_000, 118_000))] == store.grids[-2:]
    np.testing.assert_array_equal(
        follower.frame("m", ["a"], 60, 118).values, follower.frame("n", ["a"], 60, 118).values
    )


def test_metrics_that_failed_share_the_time_of_the_job_and_come_last() -> None:
    store = Store()
    store.samples["a"] = [(second * 1000, float(second)) for second in range(200)]
    follower = follow(store, deadline_seconds=20.0)
    follower.update(["a"], 100)
    store.broken = {"m"}
    follower.update(["a"], 110)
    asked = len(store.grids)
    before = time.monotonic()
    follower.update(["a"], 120)
    assert [("n",), ("m",)] == [metrics for metrics, _ in store.grids[asked:]]
    (deadline,) = set(store.deadlines[asked:])
    assert before + 20 <= deadline <= time.monotonic() + 20


def test_a_pause_longer_than_the_history_reads_the_history() -> None:
    store = Store()
    follower = follow(store)
    follower.update(["a"], 100)
    follower.update(["a"], 1000)
    follower.update(["a"], 900)
    assert [Grid(938_000, 998_000), Grid(838_000, 898_000)] == [grid for _, grid in store.grids[1:]]


def test_nodes_that_join_and_leave() -> None:
    store = Store()
    store.samples = {"a": [(99_000, 1.0)], "b": [(99_000, 2.0)]}
    follower = follow(store)
    follower.update(["a", "b"], 102)
    store.samples = {"b": [(99_000, 2.0), (104_000, 3.0)], "c": [(104_000, 4.0)]}
    follower.update(["b", "c"], 107)
    frame = follower.frame("m", ["a", "b", "c"], 99, 105)
    nan = np.nan
    np.testing.assert_array_equal(
        [[nan] * 7, [2, 2, 2, 2, 2, 3, 3], [nan] * 5 + [4, 4]], frame.values
    )


def test_reading_while_writing_never_shows_another_rows_values() -> None:
    ring, stop = GridRing(50), threading.Event()
    wrong: list[object] = []

    def write() -> None:
        second = 0
        while not stop.is_set():
            nodes = [f"n{k}" for k in range(second % 7 + 1)]
            grid = Grid(second * 1000, (second + 1) * 1000)
            values = np.array([[float(node[1:])] * 2 for node in nodes], np.float32)
            ring.write(Block(grid, tuple((node, "") for node in nodes), values))
            ring.keep(nodes)
            second += 1

    def read() -> None:
        names = tuple(f"n{k}" for k in range(7))
        try:
            for _ in range(400):
                newest = ring.newest or 60
                grid = Grid(max(0, newest - 60) * 1000, (newest + 5) * 1000)
                for row, values in enumerate(ring.frame("j", "m", names, grid).values):
                    wrong.extend(values[np.isfinite(values) & (values != row)].tolist())
        except Exception as error:
            wrong.append(error)

    writer = threading.Thread(target=write)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert [] == wrong


@pytest.mark.parametrize("step", [0.01, 0.1, 1.0, 15.0])
def test_any_step_is_followed(step: float) -> None:
    store, width = Store(), round(step * 1000)
    store.samples["a"] = [(count * width, float(count)) for count in range(300)]
    settings = ReadingSettings("http://x", overlap_seconds=5 * step, lag_seconds=0)
    follower = Follower("j", store, [Selection("m", "m")], 60 * step, settings, step)
    for steps in (100, 107, 160, 215):
        # A product with 0.1 may lie below the whole step that it is.
        follower.update(["a"], steps * step)
    first = [grid.start // width for _, grid in store.grids]
    assert [(40, 100), (95, 107), (102, 160), (155, 215)] == [
        (start, grid.end // width) for start, (_, grid) in zip(first, store.grids, strict=True)
    ]
    frame = follower.frame("m", ["a"], 155, 215)
    np.testing.assert_array_equal([np.arange(155.0, 216)], frame.values)
    np.testing.assert_array_equal(np.arange(155, 216) * width / 1000, frame.times)


def test_a_metric_that_nobody_has_is_told() -> None:
    store = Store()
    follower = follow(store)
    follower.update(["a"], 100)
    assert not follower.holds("m")
    store.samples["a"] = [(99_000, 1.0)]
    follower.update(["a"], 101)
    assert follower.holds("m")
