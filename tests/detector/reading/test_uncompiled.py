"""Reading where numba is missing or cannot compile: slower, but the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.reading.fake_server import chunked, fake_server, send
from detector.reading.naive_grid import naive_rates, naive_steps
from detector.reading.without_numba import read_without_numba
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import Grid, Matcher, ReadingSettings, Selection
from peerwatch_detector.reading.selection import SelectionPart
from peerwatch_detector.reading.transport.body import Body, read_all
from peerwatch_detector.reading.transport.connection import Response
from peerwatch_detector.reading.transport.request import RangeRequest
from peerwatch_detector.reading.transport.uncompiled import uncompiled_matrix

GRID = Grid(1000, 30_000)
ODD = 'o"dd\\nöde'
OF_JOB = (Matcher("job_id", "=", "j"),)
STREAMED = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"

samples = st.lists(
    st.tuples(
        st.integers(-10_000, 40_000),
        st.floats(width=64) | st.integers(0, 10**15).map(float),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda sample: sample[0],
).map(sorted)


class Ready(Body):
    """A body that has come already."""

    def __init__(self, text: bytes) -> None:
        self.url, self.read_bytes, self._text = "http://x", 0, text

    def read_into(self, room: memoryview) -> int:
        part, self._text = self._text[: len(room)], self._text[len(room) :]
        room[: len(part)] = part
        self.read_bytes += len(part)
        return len(part)


def rows_of(
    series: list[tuple[dict[str, str], list[tuple[int, float]]]], selection: Selection
) -> dict[tuple[str, str], list[float]]:
    settings = ReadingSettings("http://x", max_age_seconds=5)
    result = [
        {"metric": labels, "values": [[time / 1000, repr(value)] for time, value in found]}
        for labels, found in series
    ]
    data = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    response = Response("http://x", 200, "", Ready(json.dumps(data).encode()))
    request = RangeRequest(SelectionPart(selection, GRID), settings, 0.0, 1)
    block = uncompiled_matrix(response, request, 5000).block
    return dict(zip(block.keys, block.values.tolist(), strict=True))


@given(found=samples)
def test_a_step_has_the_newest_value_that_is_not_too_old(found: list[tuple[int, float]]) -> None:
    rows = rows_of([({"node": ODD}, found)], Selection("m", "m"))
    expected = np.float32(naive_steps(found, GRID, 5000))
    np.testing.assert_array_equal(expected, np.float32(rows[ODD, ""]))


@given(found=samples.map(lambda drawn: [(time, abs(value)) for time, value in drawn]))
def test_rates_are_those_of_the_slow_version(found: list[tuple[int, float]]) -> None:
    known = [(time, value if value < 1e15 else 0.0) for time, value in found]
    rows = rows_of([({"node": "a"}, known)], Selection("m", "m", rate_seconds=5))
    expected = naive_rates(known, GRID, 5000, 5)
    np.testing.assert_allclose(rows["a", ""], expected, rtol=1e-5, atol=1e-30)


def test_series_of_the_same_node_fill_each_others_gaps() -> None:
    labels = [{"node": "a", "replica": "2"}, {"node": "a", "replica": "1"}, {"instance": "b"}]
    found = [[(1000, 2.0), (8000, 3.0)], [(1000, 1.0)], [(1000, 9.0)]]
    rows = rows_of(list(zip(labels, found, strict=True)), Selection("m", "m"))
    expected = [1.0] * 6 + [np.nan] + [3.0] * 6 + [np.nan] * 17
    assert [("a", "")] == list(rows)
    np.testing.assert_array_equal(expected, rows["a", ""])


def test_a_text_that_would_fill_the_memory_is_refused() -> None:
    class Endless(Ready):
        def read_into(self, room: memoryview) -> int:
            self.read_bytes += len(room)
            return len(room)

        def close(self) -> None:
            self.closed = True

    body = Endless(b"")
    with pytest.raises(ReadError, match="sends more than 67108864 bytes of JSON") as caught:
        read_all(body)
    assert ("too_large", True) == (caught.value.reason, body.closed)
    assert body.read_bytes < 1 << 27


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("missing", "numba cannot be imported: it is not installed"),
        ("broken", "numba cannot compile: OSError"),
    ],
)
@pytest.mark.parametrize("cut", [True, False], ids=["chunks", "length"])
def test_without_numba_a_server_is_read_by_queries(failure: str, reason: str, cut: bool) -> None:
    series = {"metric": {"node": "a"}, "values": [[1, "1.5"], [9, "2.5"]]}
    data = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    text = json.dumps(data).encode()
    with fake_server() as server:
        server.responses["query"] = chunked(text[:20], text[20:]) if cut else send(200, text)
        # The probe finds a stream, which cannot be taken apart here.
        server.responses["read"] = chunked(content_type=STREAMED)
        settings = {"url": server.url, "max_age_seconds": 5, "increment_seconds": 1}
        selection = Selection("m", "m", OF_JOB)
        api, rows, log = read_without_numba(failure, settings, selection, GRID, ("a",))
    assert "query" == api
    expected = [1.5] * 6 + [np.nan] * 2 + [2.5] * 6 + [np.nan] * 16
    np.testing.assert_array_equal(expected, rows["a"])
    assert 1 == log.count("slow_reading")
    assert reason in log
