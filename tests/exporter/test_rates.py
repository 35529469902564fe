"""Sums of counters: never negative, never falling, whatever the devices do."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.catalog import family
from peerwatch_exporter.schedule.rates import CounterSum, Rise

NAME = "nic_transmit_bytes_total"
OTHER = "nic_receive_bytes_total"


def node(metric, labels):
    return ()


def read(started, values, name=NAME):
    """Return what a run gave: a value per device."""
    item = family(name)
    item.rows = [((device, "1"), value) for device, value in values.items()]
    return {name: [(item, started)]}


def test_first_run_has_a_total_and_no_rate():
    assert {(): Rise(30, None)} == CounterSum([NAME], node).update(read(10, {"a": 10, "b": 20}))


def test_rate_is_the_rise_by_the_time_between_the_runs():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 10, "b": 20}))
    assert {(): Rise(48, 12.0)} == total.update(read(11.5, {"a": 20, "b": 28}))


def test_run_seen_again_keeps_its_rate_and_adds_nothing():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 10}))
    second = read(11, {"a": 15})
    assert total.update(second) == total.update(second) == {(): Rise(15, 5.0)}


def test_counters_that_stand_still_have_no_rate_after_a_gap_and_the_right_one_when_they_rise():
    total = CounterSum([NAME], node)
    still = read(10, {"a": 10, "b": 20})[NAME][0][0]
    for second in (9, 10, 11):
        found = total.update({NAME: [(still, second)]})
    assert {(): Rise(30, 0.0)} == found
    assert found is total.update({NAME: [(still, 12)]}) is total.update({NAME: [(still, 13)]})
    assert {(): Rise(32, 4.0)} == total.update(read(13.5, {"a": 12, "b": 20}))
    total.update({NAME: [(still, 14)]})
    assert {(): Rise(32, 0.0)} == total.update({NAME: [(still, 15)]})
    assert {(): Rise(32, None)} == total.update({NAME: [(still, 40)]})
    assert {(): Rise(32, 0.0)} == total.update({NAME: [(still, 41)]})


def test_device_that_went_while_all_stood_still_is_remembered_for_a_minute():
    total = CounterSum([NAME], node)
    both, still = read(0, {"a": 10, "b": 20}), read(0, {"a": 10})[NAME][0][0]
    total.update(both)
    for second in range(1, 200):
        total.update({NAME: [(still, second)]})
    # Of b nothing is known any more, and a was there all the time.
    assert {(): Rise(31, 1.0)} == total.update(read(200, {"a": 11, "b": 10**9}))


def test_reset_of_one_device_leaves_the_rate_out_once_and_the_total_never_falls():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 1000, "b": 20}))
    assert {(): Rise(1030, None)} == total.update(read(11, {"a": 3, "b": 30}))
    assert {(): Rise(1045, 15.0)} == total.update(read(12, {"a": 8, "b": 40}))


def test_device_that_comes_or_goes_is_no_burst():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 0}))
    assert {(): Rise(5, 5.0)} == total.update(read(11, {"a": 5, "b": 10**15}))
    assert {(): Rise(12, 7.0)} == total.update(read(12, {"a": 10, "b": 10**15 + 2}))
    assert {(): Rise(17, 5.0)} == total.update(read(13, {"a": 15}))


def test_device_missing_for_a_run_has_the_mean_over_both():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 0, "b": 0}))
    total.update(read(11, {"a": 5}))
    assert {(): Rise(18, 9.0)} == total.update(read(12, {"a": 10, "b": 8}))


def test_failed_run_gives_nothing_and_the_next_one_the_mean_since():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 0}))
    assert {} == total.update({})
    assert {(): Rise(10, 5.0)} == total.update(read(12, {"a": 10}))


def test_long_gap_is_no_rate_of_a_second_but_counts():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 0}))
    assert {(): Rise(500, None)} == total.update(read(40, {"a": 500}))


def test_series_away_for_a_minute_is_forgotten():
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 0, "b": 0}))
    total.update(read(100, {"a": 0}))
    assert {(): Rise(0, 0.0)} == total.update(read(101, {"a": 0, "b": 10**9}))


def test_sum_of_two_metrics_needs_both():
    total = CounterSum([NAME, OTHER], node)
    assert {} == total.update(read(10, {"a": 1}))
    both = {**read(11, {"a": 4}), **read(11, {"a": 100}, OTHER)}
    assert {(): Rise(4, 3.0)} == total.update(both)


def test_two_metrics_start_at_the_sum_of_both():
    total = CounterSum([NAME, OTHER], node)
    both = {**read(11, {"a": 4}), **read(11, {"a": 100}, OTHER)}
    assert {(): Rise(104, None)} == total.update(both)


def test_groups_are_apart_and_series_without_one_do_not_count():
    def group(metric, labels):
        return None if labels[0] == "lo" else (labels[0],)

    total = CounterSum([NAME], group)
    total.update(read(10, {"a": 0, "b": 0, "lo": 0}))
    assert {("a",): Rise(1, 1.0), ("b",): Rise(2, 2.0)} == total.update(
        read(11, {"a": 1, "b": 2, "lo": 9})
    )


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1, 10**400])
def test_garbled_value_counts_as_missing(garbage):
    total = CounterSum([NAME], node)
    total.update(read(10, {"a": 0, "b": garbage}))
    total.update(read(11, {"a": 1, "b": 0}))
    assert {(): Rise(2, 1.0)} == total.update(read(12, {"a": 2, "b": garbage}))
    assert {(): Rise(9, 4.0)} == total.update(read(13, {"a": 3, "b": 6}))


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"),
            st.one_of(st.integers(0, 2**64), st.floats()),
        ),
        max_size=12,
    )
)
def test_whatever_is_read_no_rate_is_negative_and_no_total_falls(runs):
    total = CounterSum([NAME], node)
    before = 0.0
    for number, values in enumerate(runs):
        for rise in total.update(read(float(number), values)).values():
            assert rise.rate is None or 0 <= rise.rate
            assert before <= rise.total
            before = rise.total


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0, 20.0]),
            st.none() | st.dictionaries(st.sampled_from("abc"), st.floats(-1, 1e9), min_size=1),
        ),
        max_size=15,
    )
)
def test_family_that_comes_again_counts_as_one_that_says_the_same(runs):
    again, anew = CounterSum([NAME], node), CounterSum([NAME], node)
    started, values = 0.0, {"a": 0.0}
    same = read(started, values)[NAME][0][0]
    for seconds, changed in runs:
        started += seconds
        if changed is not None:
            values = changed
            same = read(started, values)[NAME][0][0]
        expected = anew.update(read(started, values))
        assert expected == again.update({NAME: [(same, started)]})
