"""The beat: never drifts, never bunches, counts what it leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.schedule.ticker import Beat

# The monotonic clock at start, and the Unix clock: a quarter of a second after a whole one.
START, UNIX = 100.0, 1_767_300_000.25


def ticks(beat, times):
    return [time for time in times if beat.due(time)]


def test_ticks_stand_at_whole_seconds_of_unix_time():
    beat = Beat(START, UNIX)
    assert 0.75 == beat.wait_seconds(START)
    assert [100.75, 101.75] == ticks(beat, [100.5, 100.74, 100.75, 100.8, 101.2, 101.75, 102.5])


def test_first_tick_does_not_follow_on_the_heels_of_the_first_snapshot():
    beat = Beat(START, UNIX + 0.7)
    assert 1.05 == pytest.approx(beat.wait_seconds(START))


def test_each_tick_is_given_once():
    beat = Beat(START, UNIX)
    assert [True, False, False] == [beat.due(100.75), beat.due(100.75), beat.due(101.0)]


def test_slightly_late_tick_is_taken_and_the_next_is_on_time():
    beat = Beat(START, UNIX)
    assert beat.due(101.1)
    assert 0.65 == pytest.approx(beat.wait_seconds(101.1))
    assert 0 == beat.missed


def test_tick_late_by_most_of_a_second_is_left_out():
    beat = Beat(START, UNIX)
    assert not beat.due(101.7)
    assert 1 == beat.missed
    assert beat.due(101.75)


def test_ticks_while_the_process_stood_still_are_counted_not_made_up():
    beat = Beat(START, UNIX)
    assert beat.due(100.75)
    assert beat.due(110.8)
    assert 9 == beat.missed
    assert [111.75] == ticks(beat, [110.9, 111.0, 111.75])


@given(
    unix=st.floats(1.5e9, 2.5e9),
    pauses=st.lists(st.floats(0.001, 5), min_size=1, max_size=60),
)
def test_ticks_are_half_a_second_apart_and_every_second_is_given_or_counted(unix, pauses):
    beat = Beat(START, unix)
    first = START + beat.wait_seconds(START)
    now, given_at = START, []
    for pause in pauses:
        now += pause
        if beat.due(now):
            given_at.append(now)
    assert all(b - a > 0.49 for a, b in zip([START, *given_at], given_at, strict=False))
    passed = int(now - first + 1 + 1e-5) if now >= first - 1e-5 else 0
    assert abs(passed - len(given_at) - beat.missed) <= 1
    assert 0 <= beat.wait_seconds(now) <= 1.5
