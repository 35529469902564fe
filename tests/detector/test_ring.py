from __future__ import annotations

import math
import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import naive
from peerwatch_detector.frame import Series
from peerwatch_detector.ring import Ring

CAPACITY = 20


def series(node: str, times: list[float], values: list[float], gpu: str = "") -> Series:
    labels = {"node": node} | ({"gpu": gpu} if gpu else {})
    return Series(labels, np.array(times, dtype=float), np.array(values, dtype=float))


@st.composite
def writes(draw: st.DrawFn) -> tuple[str, str, list[float], list[float]]:
    begin = draw(st.integers(0, 100))
    gaps = draw(st.lists(st.integers(0, 12), min_size=1, max_size=12))
    jitter = draw(st.sampled_from([0.0, 0.3, -0.3]))
    times = [max(0.0, t + jitter) for t in np.cumsum([begin, *gaps]).tolist()]
    value = st.floats(-100, 100, width=32) | st.sampled_from([math.nan, math.inf])
    values = draw(st.lists(value, min_size=len(times), max_size=len(times)))
    return draw(st.sampled_from("abc")), draw(st.sampled_from(["0", "1"])), times, values


@settings(max_examples=200)
@given(
    actions=st.lists(writes() | st.sets(st.sampled_from("abc")), max_size=12),
    start=st.integers(0, 150),
    length=st.integers(1, 40),
)
def test_any_writing_gives_what_a_dictionary_of_samples_gives(
    actions: list, start: int, length: int
) -> None:
    ring, slow = Ring(CAPACITY), naive.Ring(CAPACITY)
    for action in actions:
        if isinstance(action, set):
            ring.keep(action)
            slow.keep(action)
        else:
            node, gpu, times, values = action
            ring.write([series(node, times, values, gpu)])
            slow.write(node, gpu, times, values)
    frame = ring.frame("job", "load", ("c", "a", "unknown"), start, start + length - 1)
    gpus = sorted({gpu for _, gpu in slow.samples})
    assert tuple(gpus) == frame.gpus
    for row, node in enumerate(("c", "a", "unknown")):
        for column, second in enumerate(range(start, start + length)):
            expected = [slow.value(node, gpu, second) for gpu in gpus]
            if gpus:
                np.testing.assert_equal(frame.gpu_values[row, :, column], np.float32(expected))
            known = [np.float32(v) for v in expected if math.isfinite(v)]
            mean = float(np.mean(known, dtype=np.float64)) if known else math.nan
            np.testing.assert_allclose(frame.values[row, column], mean, rtol=1e-5, atol=1e-4)


def test_a_frame_has_the_asked_seconds_and_nodes_in_order() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("b", [10, 11], [1, 2]), series("a", [11, 12], [3, 4])])
    frame = ring.frame("job-1", "load", ("a", "b"), 10, 12)
    assert ("job-1", "load", ("a", "b"), (), None) == (
        frame.job_id,
        frame.metric,
        frame.nodes,
        frame.gpus,
        frame.gpu_values,
    )
    assert [10.0, 11.0, 12.0] == frame.times.tolist()
    np.testing.assert_equal(frame.values, [[math.nan, 3, 4], [1, 2, math.nan]])


def test_a_sample_belongs_to_the_nearest_second_and_the_later_of_two_wins() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", [9.6, 10.4, 10.6], [1, 2, 3])])
    np.testing.assert_equal(ring.frame("j", "m", ("a",), 10, 11).values, [[2, 3]])


@given(
    step=st.sampled_from([0.01, 0.1, 0.5, 10.0]),
    start=st.integers(0, 10**9),
    length=st.integers(1, 40),
)
def test_a_ring_of_another_step_is_one_of_seconds_that_pass_faster(
    step: float, start: int, length: int
) -> None:
    whole, other = Ring(CAPACITY), Ring(math.ceil(CAPACITY * step), step)
    numbers = list(range(start, start + length))
    whole.write([series("a", numbers, numbers)])
    other.write([series("a", [number * step for number in numbers], numbers)])
    last = start + length - 1
    expected = whole.frame("j", "m", ("a",), last - CAPACITY + 1, last)
    found = other.frame("j", "m", ("a",), (last - CAPACITY + 1) * step, last * step)
    np.testing.assert_equal(found.values, expected.values)
    np.testing.assert_allclose(found.times, expected.times * step, rtol=1e-15)


def test_a_ring_of_fine_steps_keeps_as_many_seconds() -> None:
    ring = Ring(2, 0.1)
    ring.write([series("a", [5 + number / 10 for number in range(40)], list(range(40)))])
    frame = ring.frame("j", "m", ("a",), 5.0, 8.9)
    np.testing.assert_equal(frame.values[0, 20:], np.arange(20.0, 40.0))
    assert np.isnan(frame.values[0, :20]).all()
    assert 6.3 == frame.times[13]


def test_late_and_repeated_samples_fill_holes_and_do_no_harm() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", [10, 13], [1, 4])])
    ring.write([series("a", [10, 11, 12], [1, 2, 3])])
    np.testing.assert_equal(ring.frame("j", "m", ("a",), 10, 13).values, [[1, 2, 3, 4]])


def test_a_series_far_behind_the_newest_second_leaves_the_others_alone() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", list(range(100, 120)), list(range(20)))])
    ring.write([series("b", [80, 95], [1, 2])])
    frame = ring.frame("j", "m", ("a", "b"), 100, 119)
    np.testing.assert_equal(frame.values[0], np.arange(20))
    assert np.isnan(frame.values[1]).all()


def test_a_sample_that_is_not_finite_does_not_erase_a_known_one() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", [10], [5])])
    ring.write([series("a", [10], [math.nan])])
    assert 5 == ring.frame("j", "m", ("a",), 10, 10).values[0, 0]


def test_a_jump_over_the_whole_ring_forgets_everything() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", [10, 11], [1, 2])])
    ring.write([series("a", [10_000], [3])])
    frame = ring.frame("j", "m", ("a",), 9_981, 10_000)
    assert 1 == np.isfinite(frame.values).sum()
    assert np.isnan(ring.frame("j", "m", ("a",), 10, 11).values).all()


def test_gpus_stand_in_numerical_order() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", [10], [float(g)], str(g)) for g in (10, 2, 0)])
    frame = ring.frame("j", "m", ("a",), 10, 10)
    assert ("0", "2", "10") == frame.gpus
    assert [[[0.0], [2.0], [10.0]]] == frame.gpu_values.tolist()
    assert [[4.0]] == frame.values.tolist()


def test_series_without_a_node_or_without_samples_are_ignored() -> None:
    ring = Ring(CAPACITY)
    ring.write([Series({}, np.array([1.0]), np.array([1.0])), series("a", [], [])])
    assert -1 == ring.newest
    assert np.isnan(ring.frame("j", "m", ("a",), 0, 5).values).all()


def test_nodes_that_left_are_dropped_and_may_come_back() -> None:
    ring = Ring(CAPACITY)
    ring.write([series("a", [10], [1]), series("b", [10], [2])])
    ring.keep(["b"])
    frame = ring.frame("j", "m", ("a", "b"), 10, 10)
    np.testing.assert_equal(frame.values, [[math.nan], [2]])
    ring.keep([])
    ring.write([series("a", [11], [3])])
    np.testing.assert_equal(ring.frame("j", "m", ("a", "b"), 11, 11).values, [[3], [math.nan]])


def test_reading_while_writing_never_shows_another_rows_values() -> None:
    ring = Ring(50)
    stop = threading.Event()
    wrong: list[object] = []

    def write() -> None:
        second = 0
        while not stop.is_set():
            nodes = [f"n{k}" for k in range(second % 7 + 1)]
            times = [float(second), float(second + 1)]
            ring.write([series(node, times, [int(node[1:])] * 2) for node in nodes])
            ring.keep(nodes)
            second += 1

    def read() -> None:
        names = tuple(f"n{k}" for k in range(7))
        try:
            for _ in range(400):
                newest = ring.newest
                frame = ring.frame("j", "m", names, newest - 60, newest + 5)
                for row in range(7):
                    known = frame.values[row][np.isfinite(frame.values[row])]
                    wrong.extend(known[known != row].tolist())
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
