"""Steps and rates, against slow obvious versions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.reading.decoding import padded
from detector.reading.naive_grid import naive_rates, naive_steps
from peerwatch_detector.reading.decode.grid_writer import (
    ROWS,
    GridWriter,
    close_rows,
    new_grid_writer,
    open_row,
    rates,
    with_capacity,
    write_samples,
)
from peerwatch_detector.reading.selection import Grid

Samples = list[tuple[int, float]]
SPANS = np.array([0, 4, 0, 4, -1, -1])


def fill(
    grid: Grid, age: int, samples: Samples, *, counter: bool = False, skips_nan: bool = False
) -> GridWriter:
    writer = new_grid_writer(
        grid, age, counter=counter, labels=("node", "gpu"), rows=1, skips_nan=skips_nan
    )
    assert 0 == open_row(writer, padded(b"node"), SPANS)
    for when, value in samples:
        writer.times[0], writer.numbers[0] = when, value
        write_samples(writer, 0, 1)
    close_rows(writer)
    return writer


samples = st.lists(
    st.tuples(st.integers(-9000, 40_000), st.floats() | st.integers(0, 10**15).map(float)),
    max_size=60,
    unique_by=lambda sample: sample[0],
).map(sorted)


@given(samples, st.sampled_from([100, 250, 1000, 5000]), st.sampled_from([0, 1, 2500, 5000]))
def test_a_step_has_the_newest_value_that_is_not_too_old(
    found: Samples, width: int, age: int
) -> None:
    grid = Grid(0, 30_000, width)
    np.testing.assert_array_equal(
        np.float32(naive_steps(found, grid, age)), fill(grid, age, found).values[0]
    )


@given(samples)
def test_samples_that_come_twice_or_too_late_change_nothing(found: Samples) -> None:
    grid = Grid(0, 30_000)
    again = [sample for pair in zip(found, found, strict=True) for sample in pair]
    stale = [*again, *((when, 77.0) for when, _ in found[:-1])]
    np.testing.assert_array_equal(
        fill(grid, 5000, found).values[0], fill(grid, 5000, stale).values[0]
    )


def test_nan_is_no_sample_where_the_server_says_so() -> None:
    found = [(0, 1.0), (1000, math.nan), (2000, 3.0)]
    grid = Grid(0, 2000)
    np.testing.assert_array_equal([1, math.nan, 3], fill(grid, 5000, found).values[0])
    np.testing.assert_array_equal([1, 1, 3], fill(grid, 5000, found, skips_nan=True).values[0])


counters = st.lists(
    st.tuples(st.integers(-20_000, 31_000), st.integers(0, 10**9).map(float)),
    max_size=60,
    unique_by=lambda sample: sample[0],
).map(sorted)


@given(counters, st.integers(1, 7))
def test_rates_are_those_of_the_slow_version(found: Samples, window: int) -> None:
    grid = Grid(0, 30_000)
    wide = Grid(-window * 1000, 30_000)
    increases = fill(wide, 2500, found, counter=True).values
    np.testing.assert_allclose(
        np.float32(naive_rates(found, grid, 2500, window)),
        rates(increases, window, float(window), window)[0],
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([10, 20, 30, 40], [math.nan, math.nan, 10, 10]),
        # It fell, so it began again at zero: 20 -> 5 is a gain of 5.
        ([10, 20, 5, 15], [math.nan, math.nan, 7.5, 7.5]),
        ([10, 10, 10, 10], [math.nan, math.nan, 0, 0]),
    ],
)
def test_a_rate_is_the_gain_over_its_window(values: list[float], expected: list[float]) -> None:
    grid = Grid(0, 3000)
    found = [(k * 1000, float(value)) for k, value in enumerate(values)]
    increases = fill(grid, 0, found, counter=True).values
    np.testing.assert_array_equal(expected[2:], rates(increases, 2, 2.0, 2)[0])


def test_a_counter_of_any_size_keeps_its_small_gains() -> None:
    found = [(k * 1000, 3e14 + k) for k in range(4)]
    increases = fill(Grid(0, 3000), 0, found, counter=True).values
    np.testing.assert_array_equal([0, 1, 1, 1], increases[0])


def test_more_room_keeps_what_is_there() -> None:
    writer = fill(Grid(0, 2000), 5000, [(0, 1.0)])
    assert -1 == open_row(writer, padded(b"next"), SPANS)
    more = with_capacity(writer, 2, 10_000)
    assert 1 == open_row(more, padded(b"next"), SPANS)
    assert 1 == open_row(more, padded(b"next"), SPANS)
    close_rows(more)
    np.testing.assert_array_equal([[1, 1, 1], [math.nan] * 3], more.values)
    assert (2, b"nodenext") == (more.counts[ROWS], more.labels[:8].tobytes())
