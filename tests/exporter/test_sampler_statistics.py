"""Rates and their statistics, against slow and obvious versions of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.sampler.ring import MISSING
from peerwatch_exporter.sampler.steps import Steps, lengths, since, steps
from peerwatch_exporter.sampler.window import Window

MILLISECOND = 1_000_000
LINE = 1000.0


def naive_rates(times, values):
    found = []
    for index in range(1, len(values)):
        before, after = values[index - 1], values[index]
        if before >= 0 and after >= before:
            found.append((after - before) / ((times[index] - times[index - 1]) / 1e9))
    return found


def naive_p99(values):
    """Return the smallest value that 99 % of all do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def stepped(values, **options):
    times = [number * MILLISECOND for number in range(len(values))]
    return steps(times, lengths(times), values, **options)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), st.one_of(st.integers(0, 2**62), st.just(MISSING))),
        max_size=50,
    )
)
def test_rates_leave_out_missing_values_and_resets(samples):
    times, now = [], 0
    for gap, _ in samples:
        now += gap
        times.append(now)
    values = [value for _, value in samples]

    assert pytest.approx(naive_rates(times, values)) == steps(times, lengths(times), values).rates


def test_counts_are_scaled_to_the_unit():
    assert pytest.approx([4000.0, 8000.0]) == stepped([0, 1, 3], factor=4).rates


def test_counter_refreshed_every_fifth_sample_does_not_look_like_bursts():
    # 40 % of the line: 0.4 per millisecond, but seen as 2 in every fifth sample.
    values = [number // 5 * 2 for number in range(101)]
    result = stepped(values, line_rate=LINE)

    assert result.spread
    # Two refreshes tell how far apart they are.
    assert pytest.approx([400.0] * 90) == result.rates[10:]
    assert [0, 0, 0, 0, 2] == result.growth[:5]


def test_real_burst_stays_where_it_is():
    values = [0] * 50 + list(range(1, 21)) + [20] * 30
    result = stepped(values, line_rate=LINE)

    assert not result.spread
    assert 20 == sum(rate == pytest.approx(LINE) for rate in result.rates)


def test_first_sample_of_a_burst_that_came_late_is_not_spread_over_the_pause():
    growth = [0] * 30 + [1] * 5 + [0] * 40 + [2] + [1] * 5
    values = [sum(growth[:number]) for number in range(len(growth) + 1)]
    result = stepped(values, line_rate=LINE)

    assert [0] * 39 == result.rates[35:74]
    assert pytest.approx([LINE] * 7) == result.rates[74:]


def test_late_sample_is_evened_out_with_the_one_before():
    result = stepped([0, 1, 1, 2, 4, 5], line_rate=1500.0)

    assert pytest.approx([1000, 0, 1500, 1500, 1000]) == result.rates


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_spreading_moves_traffic_and_loses_none(growth):
    values = [0]
    for amount in growth:
        values.append(values[-1] + amount)
    result = stepped(values, line_rate=LINE)

    assert pytest.approx(sum(growth)) == sum(rate * 0.001 for rate in result.rates)
    assert min(result.rates) >= 0


def test_steps_since_a_time_are_those_that_end_after_it():
    result = since(stepped([0, 1, 3, 6]), MILLISECOND)

    assert [2 * MILLISECOND, 3 * MILLISECOND] == result.times
    assert [2, 3] == result.growth
    assert pytest.approx([2000, 3000]) == result.rates


def window_of(seconds, *, window_seconds=3, threshold=None):
    window = Window(window_seconds, max(1, sum(map(len, seconds))), threshold)
    for rates in seconds:
        count = len(rates)
        window.add(Steps(list(range(count)), [0.5] * count, [int(r) for r in rates], rates))
    return window.statistics()


@given(
    st.lists(
        st.lists(st.one_of(st.just(0.0), st.floats(0, 1e12)), max_size=120), min_size=1, max_size=8
    )
)
def test_statistics_are_exact_over_the_newest_seconds(seconds):
    found = window_of(seconds, threshold=1e11)
    values = [value for second in seconds[-3:] for value in second]

    if not values:
        assert found is None
        return
    assert len(values) == found.samples
    assert max(values) == found.maximum
    assert naive_p99(values) == found.p99
    assert pytest.approx(sum(values) / len(values)) == found.mean
    assert pytest.approx(sum(v >= 1e11 for v in values) / len(values)) == found.line_ratio
    assert pytest.approx(sum(v > 0 for v in values) / len(values)) == found.active_ratio


@pytest.mark.parametrize("samples", [1, 99, 100, 101, 200, 1499, 1500, 1501])
def test_percentile_is_exact_at_every_size_of_window(samples):
    values = [float(number * 7919 % samples) for number in range(samples)]
    third = samples // 3

    found = window_of([values[:third], values[third : 2 * third], values[2 * third :]])

    assert naive_p99(values) == found.p99


def test_mean_is_over_time_and_not_over_samples():
    window = Window(3, 10)
    window.add_values([100.0, 200.0], [3.0, 1.0])

    assert 125 == window.statistics().mean


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ([0] * 20, 0.0),
        (list(range(20)), 0.001),
        ([number // 10 for number in range(100)], 0.010),
        ([0] * 10 + [1] * 10, 0.0),
    ],
    ids=["idle", "every sample", "every tenth", "once"],
)
def test_update_interval_is_the_median_time_between_changes(values, seconds):
    window = Window(3, 300)
    window.add(stepped(values))

    assert pytest.approx(seconds) == window.statistics().update_seconds


def test_update_interval_of_an_idle_second_is_that_of_the_last_busy_one():
    window = Window(3, 300)
    window.add(stepped([number // 10 for number in range(100)]))
    window.add(stepped([10] * 100))

    assert pytest.approx(0.010) == window.statistics().update_seconds
