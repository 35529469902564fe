"""The ticker: never drifts, never bunches, counts what it leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.schedule.ticker import Ticker

# The monotonic clock at start, and the Unix clock: a quarter of a second after a whole one.
START, UNIX = 100.0, 1_767_300_000.25


def ticks(ticker, times):
    return [time for time in times if ticker.due(time)]


def test_ticks_stand_at_whole_seconds_of_unix_time():
    ticker = Ticker(START, UNIX)
    assert 0.75 == ticker.wait_seconds(START)
    assert [100.75, 101.75] == ticks(ticker, [100.5, 100.74, 100.75, 100.8, 101.2, 101.75, 102.5])


def test_first_tick_does_not_follow_on_the_heels_of_the_first_snapshot():
    ticker = Ticker(START, UNIX + 0.7)
    assert 1.05 == pytest.approx(ticker.wait_seconds(START))


def test_each_tick_is_given_once():
    ticker = Ticker(START, UNIX)
    assert [True, False, False] == [ticker.due(100.75), ticker.due(100.75), ticker.due(101.0)]


def test_slightly_late_tick_is_taken_and_the_next_is_on_time():
    ticker = Ticker(START, UNIX)
    assert ticker.due(101.1)
    assert 0.65 == pytest.approx(ticker.wait_seconds(101.1))
    assert 0 == ticker.missed


def test_tick_late_by_most_of_a_second_is_left_out():
    ticker = Ticker(START, UNIX)
    assert not ticker.due(101.7)
    assert 1 == ticker.missed
    assert ticker.due(101.75)


def test_ticks_while_the_process_stood_still_are_counted_not_made_up():
    ticker = Ticker(START, UNIX)
    assert ticker.due(100.75)
    assert ticker.due(110.8)
    assert 9 == ticker.missed
    assert [111.75] == ticks(ticker, [110.9, 111.0, 111.75])


@given(
    unix=st.floats(1.5e9, 2.5e9),
    pauses=st.lists(st.floats(0.001, 5), min_size=1, max_size=60),
)
def test_ticks_are_half_a_second_apart_and_every_second_is_given_or_counted(unix, pauses):
    ticker = Ticker(START, unix)
    first = START + ticker.wait_seconds(START)
    now, given_at = START, []
    for pause in pauses:
        now += pause
        if ticker.due(now):
            given_at.append(now)
    assert all(b - a > 0.49 for a, b in zip([START, *given_at], given_at, strict=False))
    passed = int(now - first + 1 + 1e-5) if now >= first - 1e-5 else 0
    assert abs(passed - len(given_at) - ticker.missed) <= 1
    assert 0 <= ticker.wait_seconds(now) <= 1.5
