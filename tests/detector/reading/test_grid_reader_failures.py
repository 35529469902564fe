"""What goes wrong when the grid is read has a reason, and costs only itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

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
from detector.reading_server import EXPECTED, FRAMES, GRID, LOAD, ONE, STREAMED, read, values
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import (
    GridReader,
    ReadingSettings,
    Selection,
)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


@pytest.mark.parametrize(
    ("response", "reason", "text"),
    [
        (error(400, "parse error: x"), "http_4xx", "answered 400: parse error: x."),
        (error(401, "who?"), "http_4xx", "answered 401: who?"),
        (
            send(401, b"no org id\n", "text/plain"),
            "http_4xx",
            "answered 401: no org id; it has several tenants: set X-Scope-OrgID in "
            "prometheus.headers",
        ),
        (send(404, b"nothing here", "text/plain"), "http_4xx", "404: nothing here"),
        (error(500, "disk"), "http_5xx", "answered 500: disk"),
        (send(503, b"<html>Busy</html>", "text/html"), "http_5xx", "503: <html>Busy</html>"),
        (send(503, b""), "http_5xx", "503: no text"),
        (error(503, "query timed out in expression evaluation"), "timeout", "timed out"),
        (error(429, "too many outstanding requests"), "throttled", "429"),
        (send(302, b"", Location="/graph"), "malformed", "points elsewhere (/graph)"),
        (send(302, b"", Location="/login"), "malformed", "this is a Grafana"),
        (
            send(404, b'{"accessErrorId":"","message":"Not found"}'),
            "http_4xx",
            "this is a Grafana",
        ),
        (
            send(410, b'{"error":"The Alertmanager v1 API was removed"}'),
            "http_4xx",
            "this is an Alertmanager",
        ),
        (
            send(400, b"Client sent an HTTP request to an HTTPS server.", "text/plain"),
            "http_4xx",
            "speaks HTTPS",
        ),
        (send(200, b"<html>Login</html>"), "malformed", "not JSON"),
        (send(200, b""), "malformed", "not JSON"),
        (send(200, b"[]"), "malformed", "answered 200"),
        (send(200, b'{"status":"error","error":"odd"}'), "malformed", "odd"),
        (
            send(200, b'{"status":"success","data":{"resultType":"vector","result":[]}}'),
            "malformed",
            "expected a matrix, got 'vector'",
        ),
        (
            send(200, b'{"status":"success","data":{"resultType":"matrix"}}'),
            "malformed",
            "without a list",
        ),
        (matrix(["x"]), "malformed", "no series of samples"),  # type: ignore[list-item]
        (matrix([{"metric": {}, "histograms": []}]), "refused", "native histogram"),
        (send(200, b'{"status":"succ'), "truncated", "mid-response"),
        (
            send(200, b'{"status":"success","data":{"resultType":"matrix","result":[{"metr'),
            "truncated",
            "middle of a series",
        ),
        (
            send(200, b'{"status":"success","data":{"resultType":"matrix","result":[]'),
            "truncated",
            "mid-response",
        ),
        (chunked(b'{"status":', end=b"40\r\nss"), "truncated", "mid-response"),
        (chunked(b"{", end=b"zz\r\n"), "truncated", "no valid length"),
        (send(200, b"\x1f\x8b\x08broken", Content_Encoding="gzip"), "truncated", "mid-response"),
        (send(200, b"x", Content_Encoding="br"), "malformed", "Content-Encoding 'br'"),
    ],
    ids=lambda value: None if callable(value) else str(value)[:20],
)
def test_whatever_goes_wrong_has_a_reason_and_is_counted(
    server: FakeServer, response: Response, reason: str, text: str
) -> None:
    server.responses["query"] = response
    (reading,), reader = read(server.url, api="query", max_splits=0)
    with pytest.raises(ReadError) as caught:
        reading.result()
    assert text in str(caught.value)
    assert reason == caught.value.reason
    assert {reason: 1} == reader.statistics.errors
    assert 0 == reader.statistics.samples


def test_a_stream_that_ends_within_a_frame_is_truncated(server: FakeServer) -> None:
    server.responses["read"] = chunked(FRAMES[:-1], content_type=STREAMED)
    (reading,), _ = read(server.url, api="remote_read", max_splits=0)
    assert isinstance(reading.outcome, ReadError)
    assert "truncated" == reading.outcome.reason


def test_an_error_behind_frames_is_shown(server: FakeServer) -> None:
    server.responses["read"] = chunked(FRAMES, b"context canceled\n", content_type=STREAMED)
    (reading,), _ = read(server.url, api="remote_read", max_splits=0)
    assert "context canceled" in str(reading.outcome)


def test_a_server_without_streams_is_told_what_to_set(server: FakeServer) -> None:
    server.responses["read"] = send(200, b"\0", "application/x-protobuf")
    (reading,), _ = read(server.url, api="remote_read")
    assert "set the API to 'query'" in str(reading.outcome)


def test_more_series_than_the_limit_are_refused_without_asking_again(server: FakeServer) -> None:
    server.responses["query"] = matrix(
        [{"metric": {"node": str(k)}, "values": [[1, "1"]]} for k in range(20)]
    )
    (reading,), reader = read(server.url, api="query", max_series=19)
    assert "more than 19 series" in str(reading.outcome)
    assert 1 == reader.statistics.requests
    (reading,), _ = read(server.url, api="query", max_series=20)
    assert 20 == len(reading.result().block.keys)


def test_an_endless_answer_is_refused(server: FakeServer) -> None:
    def endless(handler: Handler, _: ReceivedRequest) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        while not server.release.is_set():
            handler.wfile.write(bytes(1 << 16))

    server.responses["query"] = endless
    (reading,), _ = read(server.url, api="query", max_splits=0, max_response_bytes=1 << 18)
    assert isinstance(reading.outcome, ReadError)
    assert "more than 262144 bytes" in str(reading.outcome)


@pytest.mark.parametrize("begun", [False, True], ids=["silent", "stalls"])
def test_a_server_that_does_not_answer_in_time_times_out(server: FakeServer, begun: bool) -> None:
    def stall(handler: Handler, _: ReceivedRequest) -> None:
        if begun:
            handler.send_response(200)
            handler.send_header("Content-Length", "100")
            handler.end_headers()
            handler.wfile.write(b"{")
        server.release.wait(60)

    server.responses["query"] = stall
    (reading,), _ = read(server.url, api="query", timeout_seconds=0.3, max_splits=0)
    assert isinstance(reading.outcome, ReadError)
    assert "timeout" == reading.outcome.reason
    assert "raise prometheus.timeout_seconds" in str(reading.outcome)


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_lets_nobody_in_any_more_is_not_up(server: FakeServer, status: int) -> None:
    server.responses |= {"query": matrix([ONE]), "query_range": matrix([ONE])}
    vector = send(200, b'{"status":"success","data":{"resultType":"vector","result":[]}}')
    with GridReader(ReadingSettings(server.url, longest_wait_seconds=0)) as reader:
        reader.read([LOAD], GRID, ("a",))[0].result()
        assert reader.statistics.up
        # As when a token has expired: the jobs are known, and go on being read.
        server.responses = dict.fromkeys(("query", "query_range", "read"), error(status, "no"))
        with pytest.raises(ReadError, match=str(status)):
            reader.instant("up")
        (reading,) = reader.read([LOAD], GRID, ("a",))
        assert isinstance(reading.outcome, ReadError)
        assert not reader.statistics.up
        server.responses = {"query": vector}
        reader.instant("up")
        assert reader.statistics.up


def test_an_earlier_deadline_holds(server: FakeServer) -> None:
    server.responses["query"] = matrix([ONE])
    with GridReader(ReadingSettings(server.url, api="query", max_age_seconds=5)) as reader:
        (reading,) = reader.read([LOAD], GRID, ("a",))
        np.testing.assert_array_equal(EXPECTED, values(reading))
        asked = len(server.asked)
        (reading,) = reader.read([LOAD], GRID, ("a",), deadline=time.monotonic())
    assert isinstance(reading.outcome, ReadError)
    assert ("timeout", asked) == (reading.outcome.reason, len(server.asked))


def test_a_refused_connection_tells_the_address_and_what_to_check() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{probe.getsockname()[1]}"
    readings, reader = read(url, LOAD, LOAD)
    assert 2 == len(readings)
    text = str(readings[0].outcome)
    assert "Connection refused" in text
    assert "check prometheus.url" in text
    assert "secret" not in text
    assert ({"unreachable": 1}, False) == (reader.statistics.errors, reader.statistics.up)


def test_a_header_that_cannot_be_sent_is_not_shown(server: FakeServer) -> None:
    (reading,), _ = read(server.url, headers={"Authorization": "Bearer se\ncret"})
    assert "check prometheus.url and prometheus.headers" in str(reading.outcome)
    assert "cret" not in str(reading.outcome)


def test_one_selection_that_fails_leaves_the_others(server: FakeServer) -> None:
    def respond(handler: Handler, asked: ReceivedRequest) -> None:
        good = "node_load" in asked.form["query"]
        (matrix([ONE]) if good else error(400, "bad"))(handler, asked)

    server.responses["query"] = respond
    (bad, good), _ = read(server.url, Selection("x", "x"), LOAD, api="query")
    assert isinstance(bad.outcome, ReadError)
    np.testing.assert_array_equal(EXPECTED, values(good))


def test_warnings_of_missing_stores_make_an_answer_partial(server: FakeServer) -> None:
    """Thanos and Mimir send warnings and infos, VictoriaMetrics isPartial."""
    server.responses["query"] = matrix(
        [ONE], warnings=["receive series: store down"], infos=["PromQL info: x"]
    )
    (reading,), reader = read(server.url, api="query")
    annotations = reading.result().annotations
    assert (("receive series: store down",), ("PromQL info: x",), True) == (
        annotations.warnings,
        annotations.infos,
        annotations.partial,
    )
    assert 1 == reader.statistics.partial
    (reading,), _ = read(server.url, api="query", partial="refuse", max_splits=0)
    assert "partial response: receive series: store down" in str(reading.outcome)
    assert ("false", "1") == (
        server.asked[-1].form["partial_response"],
        server.asked[-1].form["deny_partial_response"],
    )


@pytest.mark.parametrize(
    ("more", "partial"),
    [
        ({"isPartial": True}, True),
        ({"isPartial": False}, False),
        ({}, False),
        ({"warnings": ["PromQL warning: mixed"]}, False),
        ({"warnings": ["PromQL info: metric might not be a counter"]}, False),
    ],
)
def test_what_counts_as_partial(server: FakeServer, more: dict[str, Any], partial: bool) -> None:
    server.responses["query"] = matrix([ONE], **more)
    (reading,), _ = read(server.url, api="query")
    assert partial is reading.result().annotations.partial
