from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from detector.fakes import node_names
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.web.picture import HEIGHT, LEFT, RIGHT, WIDTH, Picture, draw, number

START = 5000


def frame_of(values: np.ndarray) -> JobFrame:
    times = START + np.arange(values.shape[1], dtype=np.float64)
    return JobFrame("j", "load", node_names(len(values)), times, values.astype(np.float32))


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(\S+),(\S+)", text)]


def all_points(picture: Picture) -> list[tuple[float, float]]:
    lines = [*picture.peers, *picture.node, picture.band]
    return [point for line in lines for point in points(line)]


def check(picture: Picture) -> None:
    for x, y in all_points(picture):
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
        assert 0 <= y <= HEIGHT
    for x, _ in picture.x_ticks:
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
    for y, _ in picture.y_ticks:
        assert 0 <= y <= HEIGHT


@given(
    values=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(2, 60)),
        elements=st.floats(0, 2.0**40, width=32) | st.floats(-10, 10, width=32) | st.just(math.nan),
    )
)
def test_everything_lies_in_the_view_box(values: np.ndarray) -> None:
    picture = draw(frame_of(values), "node-00", START + 1.0)
    check(picture)
    drawn = sum(len(points(line)) for line in picture.node)
    assert int(np.isfinite(values[0]).sum()) == drawn


def test_higher_values_stand_higher_and_later_ones_further_right() -> None:
    picture = draw(frame_of(np.array([[0.0, 1.0, 2.0], [2.0, 2.0, 2.0]])), "node-00", None)
    (line,) = picture.node
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert x0 < x1 < x2
    assert y0 > y1 > y2
    assert (float(LEFT), float(WIDTH - RIGHT)) == (x0, x2)


def test_lines_are_cut_where_samples_are_missing() -> None:
    values = np.ones((2, 60))
    values[0, 10:30] = values[0, 40:45] = values[0, 50:] = math.nan
    picture = draw(frame_of(values), "node-00", None)
    assert [10, 15] == [len(points(line)) for line in picture.node]


def test_time_before_anything_is_known_is_left_out() -> None:
    values = np.ones((2, 60))
    values[:, :40] = math.nan
    (line,) = draw(frame_of(values), "node-00", None).node
    assert (float(LEFT), float(WIDTH - RIGHT)) == (points(line)[0][0], points(line)[-1][0])


def test_the_moment_of_the_deviation_is_marked_if_it_is_in_the_picture() -> None:
    frame = frame_of(np.ones((2, 101)))
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    assert pytest.approx(middle) == draw(frame, "node-00", START + 50.0).since
    assert draw(frame, "node-00", START - 1.0).since is None
    assert draw(frame, "node-00", START + 101.0).since is None


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 5e11], ids=str)
def test_a_constant_metric_has_ticks_and_a_line(value: float) -> None:
    picture = draw(frame_of(np.full((3, 20), value)), "node-01", None)
    check(picture)
    assert 2 <= len(picture.y_ticks) <= 7
    assert 1 == len(picture.node)


def test_nothing_known_draws_nothing_and_does_not_break() -> None:
    picture = draw(frame_of(np.full((3, 20), math.nan)), "node-01", START + 3.0)
    assert ([], [], "") == (picture.peers, picture.node, picture.band)
    check(picture)


def test_a_large_job_shows_some_peers_and_the_band_of_all() -> None:
    picture = draw(frame_of(np.random.default_rng(0).random((127, 30))), "node-05", None)
    assert 32 <= len(picture.peers) <= 64
    assert 60 == len(points(picture.band))


def test_the_node_is_not_among_its_peers() -> None:
    values = np.stack([np.full(10, 1.0), np.full(10, 2.0), np.full(10, 3.0)])
    picture = draw(frame_of(values), "node-01", None)
    assert 2 == len(picture.peers)
    assert picture.node[0] not in picture.peers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.45, "0.45"), (900.0, "900"), (12_300_000.0, "12.3 M"), (-2e9, "-2 G")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert text == number(value)


def test_time_ticks_count_back_from_now() -> None:
    picture = draw(frame_of(np.ones((2, 601))), "node-00", None)
    assert ["now", "-2:00", "-4:00"] == [text for _, text in picture.x_ticks][:3]
    assert float(WIDTH - RIGHT) == picture.x_ticks[0][0]


def test_time_ticks_count_from_the_moment_that_is_marked() -> None:
    picture = draw(frame_of(np.ones((2, 601))), "node-00", START + 230.0)
    ticks = {text: x for x, text in picture.x_ticks}
    assert ["+6:00", "+4:00", "+2:00", "0:00", "-2:00"] == list(ticks)
    assert pytest.approx(picture.since) == ticks["0:00"]
    check(picture)
