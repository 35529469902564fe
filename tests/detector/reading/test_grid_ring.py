"""The ring against a dictionary, and the follower against a whole read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
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
from peerwatch_detector.reading.envelope import Remarks
from peerwatch_detector.reading.question import Result

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

    def read(
        self, selections: Sequence[Selection], grid: Grid, nodes: Sequence[str] = ()
    ) -> list[Reading]:
        self.grids.append((tuple(one.metric for one in selections), grid))
        return [Reading(one, self._outcome(one, grid), "query") for one in selections]

    def _outcome(self, selection: Selection, grid: Grid) -> Result | ReadError:
        if selection.metric in self.broken:
            return ReadError("timeout", "slow")
        rows = [naive_steps(one, grid, 5000) for one in self.samples.values()]
        keys = tuple((node, "") for node in self.samples)
        values = np.float32(rows).reshape(len(keys), grid.steps)
        return Result(Block(grid, keys, values), Remarks(), 0)


def follow(store: Store, **settings: float) -> Follower:
    chosen = ReadingSettings("http://x", **settings)  # type: ignore[arg-type]
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
    outcome = follower.update(["a"], 110)["n"].outcome
    assert isinstance(outcome, ReadError)
    assert np.isnan(follower.frame("n", ["a"], 99, 108).values).all()
    store.broken = set()
    follower.update(["a"], 120)
    assert [(("m",), Grid(103_000, 118_000)), (("n",), Grid(93_000, 118_000))] == store.grids[-2:]
    np.testing.assert_array_equal(
        follower.frame("m", ["a"], 60, 118).values, follower.frame("n", ["a"], 60, 118).values
    )


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
