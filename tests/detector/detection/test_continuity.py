from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detector import naive
from peerwatch_detector.detection.continuity import DeviationTracker


def follow(*marks: str, gap: float = 5.0, start: int = 1000) -> DeviationTracker:
    """Feed one row per node: ``x`` a candidate, ``.`` none, ``?`` not evaluated, one per second."""
    deviations = DeviationTracker(gap)
    deviations.follow(tuple("abcdefgh"[: len(marks)]))
    for step, column in enumerate(zip(*marks, strict=True)):
        candidates = np.array([mark == "x" for mark in column])
        evaluated = np.array([mark != "?" for mark in column])
        deviations.update(float(start + step), candidates, evaluated)
    return deviations


def test_a_deviation_is_as_long_as_from_its_first_to_its_last_candidate() -> None:
    assert [3.0, 0.0] == follow(".xxxx", ".....").seconds().tolist()
    assert [1001.0] == follow(".xxxx").start.tolist()


def test_a_single_candidate_is_a_deviation_of_no_length() -> None:
    deviations = follow("..x")
    assert [0.0] == deviations.seconds().tolist()
    assert [1002.0] == deviations.start.tolist()


def test_a_pause_up_to_the_gap_does_not_break_a_deviation() -> None:
    assert [8.0] == follow("xx.....xx").seconds().tolist()
    assert [1.0] == follow("xx......xx").seconds().tolist()


def test_without_a_gap_one_second_breaks() -> None:
    assert [1.0] == follow("xxx.xx", gap=0.0).seconds().tolist()


def test_seconds_without_evaluation_neither_lengthen_nor_break() -> None:
    assert [1.0] == follow("xx" + "?" * 50).seconds().tolist()
    assert [52.0] == follow("xx" + "?" * 50 + "x").seconds().tolist()


def test_a_hole_longer_than_two_minutes_breaks() -> None:
    assert [121.0] == follow("xx" + "?" * 119 + "x").seconds().tolist()
    assert [0.0] == follow("xx" + "?" * 120 + "x").seconds().tolist()
    broken = follow("xx" + "?" * 120 + ".")
    assert np.isnan(broken.start).all()


def test_quiet_counts_evaluated_seconds_only() -> None:
    assert [3.0] == follow("x...").quiet.tolist()
    assert [4.0] == follow("x..." + "?" * 60 + ".").quiet.tolist()
    assert [0.0] == follow("...x").quiet.tolist()


def test_nodes_have_deviations_of_their_own() -> None:
    assert [4.0, 0.0, 2.0] == follow("xxxxx", ".....", "..xxx").seconds().tolist()


def test_known_nodes_keep_their_deviation_when_the_list_changes() -> None:
    deviations = follow("xxxx", "....", ".xxx")
    deviations.follow(("new", "c", "a"))
    assert [0.0, 2.0, 3.0] == deviations.seconds().tolist()
    deviations.update(1004.0, np.array([True, True, False]), np.ones(3, dtype=bool))
    assert [0.0, 3.0, 3.0] == deviations.seconds().tolist()
    assert ("new", "c", "a") == deviations.nodes


@given(
    marks=st.lists(st.sampled_from("xxx..?"), max_size=80),
    gap=st.sampled_from([0.0, 1.0, 5.0]),
    jumps=st.lists(st.integers(1, 200), min_size=80, max_size=80),
    irregular=st.booleans(),
)
def test_deviations_are_those_of_the_step_by_step_version(
    marks: list[str], gap: float, jumps: list[int], irregular: bool
) -> None:
    deviations, time, steps = DeviationTracker(gap), 0.0, []
    deviations.follow(("a",))
    for mark, jump in zip(marks, jumps, strict=False):
        time += jump if irregular else 1
        steps.append((time, mark == "x", mark != "?"))
        deviations.update(time, np.array([mark == "x"]), np.array([mark != "?"]))
    assert naive.deviation_seconds(steps, gap) == deviations.seconds()[0]


@given(
    marks=st.lists(st.sampled_from("x.?"), min_size=1, max_size=12),
    gap=st.sampled_from([0.0, 3.0]),
    pauses=st.lists(st.sampled_from([1, 1, 1, 2, 130]), min_size=0, max_size=9),
)
def test_resting_is_as_many_steps_without_a_candidate(
    marks: list[str], gap: float, pauses: list[int]
) -> None:
    both = "".join(marks), "." * len(marks)
    slow, fast = follow(*both, gap=gap), follow(*both, gap=gap)
    times = np.cumsum([1000 + len(marks), *pauses])
    for time in times:
        slow.update(float(time), np.zeros(2, dtype=bool), np.ones(2, dtype=bool))
    fast.rest(times)
    slow.update(times[-1] + 1.0, np.array([True, False]), np.ones(2, dtype=bool))
    fast.update(times[-1] + 1.0, np.array([True, False]), np.ones(2, dtype=bool))
    for name in ("start", "last", "quiet"):
        np.testing.assert_array_equal(getattr(slow, name), getattr(fast, name))
