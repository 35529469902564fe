"""The picture of one metric: plain numbers in, SVG out."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from detector.web.test_web import NASTY, START
from peerwatch_detector.web.deviation import LARGE, SMALL, Curve, deviation_svg, time_marks

NAN = math.nan


def curve(values: list[float], unit: str = "watts", gpu: str = "") -> Curve:
    count = len(values)
    times = [START + 15.0 * k for k in range(count)]
    low, median, high = ([level] * count for level in (90.0, 100.0, 110.0))
    return Curve("power", "GPU power", unit, "n5", gpu, times, values, low, median, high)


def paths(svg: str, colour: str) -> list[str]:
    root = ET.fromstring(svg)
    return [each.get("d", "") for each in root.iter() if colour in each.get("stroke", "")]


def test_the_node_is_a_red_line_over_the_band_and_the_median_of_its_peers() -> None:
    svg = deviation_svg(curve([100.0] * 10 + [40.0] * 10), START + 150)
    node, mark = paths(svg, "--bad")

    assert 20 == node.count(" ")
    assert mark.startswith("M")
    assert "V" in mark
    assert 1 == len(paths(svg, "--peer"))
    assert "deviates since 22:15:50 UTC" in svg
    assert "at the end 40 W, median of the peers 100 W" in svg


def test_axes_have_the_unit_of_tables() -> None:
    texts = [each.text for each in ET.fromstring(deviation_svg(curve([100.0] * 20))).iter()]

    assert "100 W" in texts
    assert "22:14" in texts


@pytest.mark.parametrize(
    ("values", "moves"),
    [([1.0] * 6, 1), ([1.0, 1.0, NAN, NAN, NAN, 1.0], 2), ([NAN] * 6, 0), ([1.0, NAN, 1.0], 1)],
)
def test_a_line_is_broken_where_samples_are_missing(values: list[float], moves: int) -> None:
    found = paths(deviation_svg(curve(values)), "--bad")

    assert moves == sum(path.count("M") for path in found)


@pytest.mark.parametrize("level", [0.0, 1e-12, 5.0, -3.0, 1e15])
def test_a_constant_of_any_size_can_be_drawn(level: float) -> None:
    same = [level] * 5
    flat = replace(curve(same), low=same, median=same, high=same)

    ET.fromstring(deviation_svg(flat, size=LARGE))


def test_one_that_stands_alone_brings_title_and_colours_and_loads_nothing() -> None:
    svg = deviation_svg(curve([1.0, 2.0], gpu="3"), START + 5, LARGE, alone=True)

    assert "var(" not in svg
    assert ">GPU power<" in svg
    assert "red n5, GPU 3" in svg
    assert "href" not in svg
    assert "url(" not in svg


def test_hostile_names_are_escaped() -> None:
    nasty = replace(curve([1.0, 2.0]), title=NASTY, node=NASTY)

    for svg in (deviation_svg(nasty), deviation_svg(nasty, alone=True)):
        assert "<script" not in svg
        ET.fromstring(svg)


def test_a_small_picture_of_an_incident_is_small() -> None:
    values = [100.0 + k % 7 for k in range(60)]

    assert 4000 > len(deviation_svg(curve(values), START + 300, SMALL))


def test_a_course_without_samples_says_so() -> None:
    empty = curve([NAN] * 3)
    assert curve([1.0, 2.0]).is_known
    assert not replace(empty, median=[NAN] * 3).is_known


def test_marks_of_time_are_round() -> None:
    assert ["22:15", "22:20"] == [text for _, text in time_marks(START + 60, START + 600, 3)]
