"""The heat map of segments: who takes longer than the median, in which part of a step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from detector.fakes import FakeClock, FakeReader, config_for, healthy, node_names
from peerwatch_common.web.facts import WebFacts
from peerwatch_detector.diagnosis.segments import QUERIES, SegmentTimes, segment_times
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading.instant_reader import Answers
from peerwatch_detector.service.detector import Detector
from peerwatch_detector.web.app import create_app
from peerwatch_detector.web.segments import MOST_RANKS, HeatMaps, draw

# Seconds of a step of 0.5 s; a job of two steps per second.
HEALTHY = {"step": 0.5, "data": 0.05, "forward": 0.1, "backward": 0.3, "gc": 0.0001}


def series(value: float, **labels: str) -> Series:
    return Series(labels, np.array([1_700_000_000.0]), np.array([value]))


def job(ranks: int, slow: Mapping[int, Mapping[str, float]]) -> dict[str, list[Series]]:
    """Answer as a server does about ranks, of which some take so long in some segments."""
    seconds = [
        series(2 * value, rank=str(rank), node=f"n{rank // 8}", segment=segment)
        for rank in range(ranks)
        for segment, value in (HEALTHY | dict(slow.get(rank, {}))).items()
    ]
    steps = [series(2.0, rank=str(rank), node=f"n{rank // 8}") for rank in range(ranks)]
    return {"seconds": seconds, "steps": steps}


class FakeInstants:
    """Answers with what a test gives; counts how often it was asked."""

    def __init__(self, answers: dict[str, list[Series]] | Exception) -> None:
        self.answers = answers
        self.queries: list[Mapping[str, str]] = []
        self.errors: dict[str, int] = {}

    def read(self, queries: Mapping[str, str]) -> Answers:
        self.queries.append(queries)
        if isinstance(self.answers, Exception):
            raise self.answers
        return {name: self.answers.get(name, []) for name in queries}

    def close(self) -> None:
        pass


def test_a_slow_loader_is_hot_in_data_and_cold_where_it_need_not_wait() -> None:
    times = segment_times(**job(4, {2: {"data": 0.15, "backward": 0.2}}))
    assert times is not None
    assert times.segments == ("step", "data", "forward", "backward", "gc")
    assert times.seconds[2] == pytest.approx([0.5, 0.15, 0.1, 0.2, 0.0001])
    assert times.median == pytest.approx([0.5, 0.05, 0.1, 0.3, 0.0001])
    assert times.ratios[2] == pytest.approx([1, 3, 1, 2 / 3, 1])
    heat = draw(times)
    assert [cell.shade for cell in heat.rows[2].cells] == [0, 5, 0, 0, 0]
    assert [cell.ratio for cell in heat.rows[2].cells] == ["1.00", "3.00", "1.00", "0.67", ""]
    assert {cell.shade for row in heat.rows if row.rank != 2 for cell in row.cells} == {0}


@pytest.mark.parametrize(("ratio", "shade"), [(1.04, 0), (1.1, 1), (1.25, 2), (1.45, 4), (9, 5)])
def test_colours_rise_from_the_median_to_half_as_much_again(ratio: float, shade: int) -> None:
    times = segment_times(**job(5, {1: {"forward": 0.1 * ratio}}))
    assert times is not None
    assert draw(times).rows[1].cells[2].shade == shade


def test_of_a_large_job_the_ranks_that_differ_most_are_shown() -> None:
    times = segment_times(**job(1024, {777: {"forward": 0.4}, 3: {"data": 0.06}}))
    assert times is not None
    heat = draw(times)
    assert len(heat.rows) == MOST_RANKS
    assert {3, 777} <= {row.rank for row in heat.rows}
    assert heat.left_out == 1024 - MOST_RANKS
    assert [row.rank for row in heat.rows] == sorted(row.rank for row in heat.rows)


def test_what_is_odd_or_missing_costs_only_itself() -> None:
    answers = job(3, {})
    answers["seconds"] += [
        series(float("nan"), rank="0", node="n0", segment="own"),
        series(1.0, rank="x", node="n0", segment="data"),
        series(1.0, rank="9", node="n0", segment="data"),  # made no step
        series(1.0, rank="1", node="n0"),
        series(0.02, rank="1", node="n0", segment="tokenize"),
    ]
    answers["steps"].append(series(0.0, rank="9", node="n0"))
    times = segment_times(**answers)
    assert times is not None
    assert [rank for rank, _ in times.ranks] == [0, 1, 2]
    assert times.segments[-1] == "tokenize"
    assert np.isnan(times.seconds[[0, 2], -1]).all()
    assert [row.cells[-1].time for row in draw(times).rows] == ["-", "0.01 s", "-"]
    assert segment_times([], []) is None


def test_a_view_shows_it_and_asks_once_for_all_visitors() -> None:
    clock = FakeClock(1_700_000_000)
    config = config_for()
    reader = FakeReader(clock, config)
    instants = FakeInstants({})
    detector = Detector(config, reader, EMPTY, clock, instants=instants)
    reader.add_job("team/<j>", {"load": healthy(4, 1000)}, node_names(4), 1_700_000_000)
    for _ in range(10):
        clock.advance(30)
        detector.cycle()
    client = create_app(detector, WebFacts()).test_client()
    html = client.get("/jobs/team/<j>").text
    address = html.split('">where the seconds of a step go</a>')[0].rpartition('href="')[2]
    instants.queries.clear()
    assert "No rank of this job has told of its steps" in client.get(address).text
    assert 'span_seconds_total{ job_id="team/<j>" }' in instants.queries[0]["seconds"]
    assert set(instants.queries[0]) == set(QUERIES)
    client.get(address)
    assert len(instants.queries) == 1
    assert client.get("/segments/other").status_code == 404


def test_answers_are_kept_for_seconds_and_failures_are_told() -> None:
    instants = FakeInstants(job(3, {}))
    now = [0.0]
    maps = HeatMaps(instants, lambda: now[0])
    assert [row.rank for row in maps.get("j").rows] == [0, 1, 2]
    instants.answers = ReadError("unreachable", "http://p cannot be reached.")
    now[0] = 4.9
    assert maps.get("j").rows
    now[0] = 5.1
    assert maps.get("j").note == "http://p cannot be reached."
    assert "diagnosis.enabled" in HeatMaps(None).get("j").note
    instants.answers = {"seconds": ReadError("too_large", "too many series"), "steps": []}  # type: ignore[dict-item]
    now[0] = 99
    assert maps.get("j").note == "too many series"


def test_of_ranks_that_are_left_out_the_median_still_counts():
    seconds = np.array([[1.0], [1.0], [1.0], [4.0]])
    times = SegmentTimes.of(tuple((rank, "c0") for rank in range(4)), ("step",), seconds)

    assert times.farthest(1).ratios.tolist() == [[4.0]]
