"""Clocks by the ends of collectives: synthetic ranks half a second apart that drift."""

from __future__ import annotations

import random

import pytest

from peerwatch_detector.diagnosis.timeline.clock_marks import ClockMarks
from peerwatch_detector.diagnosis.timeline.lines import RankSpan

START = 1_767_300_000.0


def span(end, number, collective="all_reduce", group="0", duration=0.004):
    return RankSpan("collective", end - duration, duration, number, group, collective)


def rank_spans(seed, offset, drift, seconds=600, every=1.0):
    """A collective a second, whose end each rank notices a little later, now and then by much."""
    noise = random.Random(seed)
    spans = []
    for number in range(int(seconds / every)):
        true = START + number * every
        late = noise.expovariate(1 / 0.0002) + (noise.random() < 0.1) * noise.random() * 0.05
        spans.append(span(true + late + offset + drift * (true - START), number))
    return spans


@pytest.fixture
def marks():
    """Three ranks whose clocks are known."""
    known = ClockMarks()
    for rank in range(3):
        for found in rank_spans(rank, 0.0, 0.0):
            known.add(found)
    return known


@pytest.mark.parametrize("offset", [-0.5, 0.5])
@pytest.mark.parametrize("drift", [-50e-6, 0.0, 50e-6])
def test_spans_of_ten_minutes_are_placed_to_a_millisecond(marks, offset, drift):
    for seed in range(10, 20):
        shift = marks.shift(rank_spans(seed, offset, drift))
        assert shift.error < 0.001
        for second in range(600):
            own = START + second + offset + drift * second
            assert abs(shift.corrected(own) - (START + second)) < 0.001


def test_few_marks_give_an_offset_and_no_drift(marks):
    shift = marks.shift(rank_spans(10, 0.25, 0.0)[:10])
    assert 0 == shift.drift
    assert pytest.approx(0.25, abs=0.001) == shift.offset


def test_without_marks_in_common_nothing_is_known(marks):
    assert marks.shift(rank_spans(10, 0.5, 0.0)[:4]) is None
    assert marks.shift([]) is None
    others = [span(START + n, n, group="7") for n in range(100)]
    assert marks.shift(others) is None


@pytest.mark.parametrize("collective", ["broadcast", "send", "recv", "reduce", "scatter", ""])
def test_what_ranks_do_not_end_together_is_no_mark(collective):
    known = ClockMarks()
    found = [span(START + n, n, collective) for n in range(100)]
    for each in found:
        known.add(each)
    assert known.shift(found) is None
