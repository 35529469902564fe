"""The reader on a real HTTP server that answers as a test tells it to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from detector.reading.chunk_writer import chunk, frame, series
from detector.reading.fake_server import (
    FakeServer,
    Handler,
    ReceivedRequest,
    Response,
    chunked,
    error,
    fake_server,
    matrix,
    send,
)
from detector.reading_server import EXPECTED, FRAMES, LINES, ONE, STREAMED, read, values
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import (
    Selection,
)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


@pytest.mark.parametrize(
    ("word", "response", "api"),
    [
        ("read", chunked(FRAMES, content_type=STREAMED), "remote_read"),
        ("export", send(200, LINES, "application/stream+json; charset=utf-8"), "export"),
        ("query", matrix([ONE]), "query"),
    ],
)
def test_the_cheapest_way_that_the_server_has_is_taken(
    server: FakeServer, word: str, response: Response, api: str
) -> None:
    server.responses[word] = response
    (reading,), reader = read(server.url, increment_seconds=1)
    assert api == reading.api
    np.testing.assert_array_equal(EXPECTED, values(reading))
    assert (2, 1, {}, True) == (
        reader.statistics.samples,
        reader.statistics.requests,
        reader.statistics.errors,
        reader.statistics.up,
    )


def test_short_ranges_are_read_as_raw_samples_where_remote_read_gains_nothing(
    server: FakeServer,
) -> None:
    server.responses |= {"read": chunked(FRAMES, content_type=STREAMED), "query": matrix([ONE])}
    (reading,), _ = read(server.url)
    assert "query" == reading.api
    assert {"query": 'node_load{job_id="j"}[24001ms]', "time": "20.000", "timeout": "60s"} == (
        server.asked[0].form
    )


def test_a_way_that_fails_is_replaced_by_the_next(server: FakeServer) -> None:
    """The probe sees a stream, but behind it stands something else."""
    server.responses |= {
        "read": lambda handler, asked: (
            chunked(content_type=STREAMED)(handler, asked)
            if b"peerwatch_probe" in asked.body
            else chunked(b"\x05garbage!!", content_type=STREAMED)(handler, asked)
        ),
        "query": matrix([ONE]),
    }
    (reading,), reader = read(server.url, increment_seconds=1)
    assert "query" == reading.api
    np.testing.assert_array_equal(EXPECTED, values(reading))
    assert {"malformed": 1} == reader.statistics.errors


def test_chunks_in_another_encoding_are_read_as_raw_samples(server: FakeServer) -> None:
    """Prometheus with chunk_encoding.floats: xor2 sends its chunks as they are stored."""
    stored = frame(series({"node": "a"}, [chunk([(1000, 1.5)], encoding=4)]))
    server.responses |= {"read": chunked(stored, content_type=STREAMED), "query": matrix([ONE])}
    (reading,), reader = read(server.url, increment_seconds=1)
    assert "query" == reading.api
    np.testing.assert_array_equal(EXPECTED, values(reading))
    assert {"malformed": 1} == reader.statistics.errors
    (reading,), _ = read(server.url, api="remote_read")
    assert "xor2" in str(reading.outcome)
    assert "set prometheus.reading.api to 'auto' or 'query'" in str(reading.outcome)


def test_an_expression_is_evaluated_by_steps_and_its_values_do_not_last(
    server: FakeServer,
) -> None:
    server.responses["query_range"] = matrix([ONE])
    (reading,), _ = read(server.url, Selection("load", "", expression="max by (node) (x)"))
    form = server.asked[0].form
    assert ("max by (node) (x)", "1.000", "20.000", "1") == (
        form["query"],
        form["start"],
        form["end"],
        form["step"],
    )
    expected = np.full(20, np.nan)
    expected[[0, 8]] = 1.5, 2.5
    np.testing.assert_array_equal(expected, values(reading))


def too_much(limit: int) -> Response:
    """Refuse what asks for more than some seconds of a range selector."""

    def respond(handler: Handler, asked: ReceivedRequest) -> None:
        length = int(asked.form["query"].rpartition("[")[2].removesuffix("ms]"))
        if length > limit:
            error(422, "query processing would load too many samples")(handler, asked)
        else:
            matrix([ONE])(handler, asked)

    return respond


def test_a_refused_request_is_cut_by_time(server: FakeServer) -> None:
    server.responses["query"] = too_much(10_001)
    (reading,), reader = read(server.url, api="query", nodes=())
    np.testing.assert_array_equal(EXPECTED, values(reading))
    assert reader.statistics.splits == reader.statistics.errors["refused"] > 1


def test_a_short_refused_request_is_cut_by_nodes(server: FakeServer) -> None:
    def respond(handler: Handler, asked: ReceivedRequest) -> None:
        wanted = [
            node
            for node in ("a", "b", "c.d")
            if node.replace(".", "\\\\.") in asked.form["query"].partition("node=~")[2]
        ]
        if len(wanted) != 1:
            error(422, "too many series")(handler, asked)
        else:
            matrix([{"metric": {"node": wanted[0]}, "values": [[1, "7"]]}])(handler, asked)

    server.responses["query"] = respond
    (reading,), _ = read(server.url, api="query", nodes=("a", "b", "c.d"))
    assert {("a", ""), ("b", ""), ("c.d", "")} == set(reading.result().block.keys)
    assert 'node_load{job_id="j",node=~"b|c\\\\.d"}[24001ms]' in [
        asked.form["query"] for asked in server.asked
    ]


def test_splitting_ends(server: FakeServer) -> None:
    server.responses["query"] = error(422, "no")
    (reading,), reader = read(server.url, api="query", max_splits=3)
    with pytest.raises(ReadError, match="answered 422: no"):
        reading.result()
    assert (4, 3) == (reader.statistics.requests, reader.statistics.splits)


def test_large_requests_are_asked_in_parts(server: FakeServer) -> None:
    server.responses["query_range"] = matrix([ONE])
    (_,), reader = read(
        server.url, api="query_range", nodes=("a", "b", "c"), max_samples=15, max_points=7
    )
    assert 4 == reader.statistics.requests
    starts = [asked.form["start"] for asked in server.asked]
    assert ["1.000", "6.000", "11.000", "16.000"] == starts
