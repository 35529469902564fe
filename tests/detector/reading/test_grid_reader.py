"""The reader on a real HTTP server that answers as a test tells it to."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import trustme

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
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import (
    Grid,
    GridReader,
    Matcher,
    Reading,
    ReadingSettings,
    Selection,
    grid_reader,
)
from peerwatch_detector.reading.decode.export_lines import decode_lines
from peerwatch_detector.reading.decode.frames import decode_frames
from peerwatch_detector.reading.decode.grid_writer import close_rows, rates
from peerwatch_detector.reading.decode.matrix import decode_matrix

LOAD = Selection("load", "node_load", (Matcher("job_id", "=", "j"),))
GRID = Grid(1000, 20_000)
ONE = {"metric": {"node": "a"}, "values": [[1, "1.5"], [9, "2.5"]]}
STREAMED = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
LINES = b'{"metric":{"node":"a"},"values":[1.5,2.5],"timestamps":[1000,9000]}\n'
FRAMES = frame(series({"node": "a"}, [chunk([(1000, 1.5), (9000, 2.5)])]))
EXPECTED = [1.5] * 6 + [np.nan] * 2 + [2.5] * 6 + [np.nan] * 6


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


def read(
    url: str,
    *selections: Selection,
    nodes: tuple[str, ...] = ("a",),
    grid: Grid = GRID,
    **settings: Any,
) -> tuple[list[Reading], GridReader]:
    chosen = ReadingSettings(url, **{"timeout_seconds": 60, "max_age_seconds": 5, **settings})
    with GridReader(chosen) as reader:
        return reader.read(selections or [LOAD], grid, nodes), reader


def values(reading: Reading) -> Any:
    return reading.result().block.frame("j", "load", ["a"]).values[0]


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


def test_a_refused_question_is_cut_by_time(server: FakeServer) -> None:
    server.responses["query"] = too_much(10_001)
    (reading,), reader = read(server.url, api="query", nodes=())
    np.testing.assert_array_equal(EXPECTED, values(reading))
    assert reader.statistics.splits == reader.statistics.errors["refused"] > 1


def test_a_short_refused_question_is_cut_by_nodes(server: FakeServer) -> None:
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


def test_large_questions_are_asked_in_parts(server: FakeServer) -> None:
    server.responses["query_range"] = matrix([ONE])
    (_,), reader = read(
        server.url, api="query_range", nodes=("a", "b", "c"), max_samples=15, max_points=7
    )
    assert 4 == reader.statistics.requests
    starts = [asked.form["start"] for asked in server.asked]
    assert ["1.000", "6.000", "11.000", "16.000"] == starts


@pytest.mark.parametrize(
    ("response", "reason", "text"),
    [
        (error(400, "parse error: x"), "http_4xx", "answered 400: parse error: x."),
        (error(401, "who?"), "http_4xx", "answered 401: who?"),
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
    ],
)
def test_what_counts_as_partial(server: FakeServer, more: dict[str, Any], partial: bool) -> None:
    server.responses["query"] = matrix([ONE], **more)
    (reading,), _ = read(server.url, api="query")
    assert partial is reading.result().annotations.partial


def test_connections_are_kept_and_a_dropped_one_is_opened_again(server: FakeServer) -> None:
    server.responses["query"] = chunked(
        json.dumps(
            {"status": "success", "data": {"resultType": "matrix", "result": [ONE]}}
        ).encode()
    )
    with GridReader(
        ReadingSettings(server.url, api="query", connections=1, max_age_seconds=5)
    ) as reader:
        for _ in range(3):
            np.testing.assert_array_equal(EXPECTED, values(reader.read([LOAD], GRID)[0]))
        assert 1 == len(server.connections)
        good = server.responses["query"]

        def hang_up(handler: Handler, asked: ReceivedRequest) -> None:
            server.responses["query"] = good
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        server.responses["query"] = hang_up
        np.testing.assert_array_equal(EXPECTED, values(reader.read([LOAD], GRID)[0]))
    assert 2 == len(server.connections)


def test_a_read_takes_half_of_the_connections_at_the_same_time(server: FakeServer) -> None:
    together = threading.Barrier(2)

    def respond(handler: Handler, asked: ReceivedRequest) -> None:
        together.wait(60)
        matrix([ONE])(handler, asked)

    server.responses["query"] = respond
    readings, _ = read(server.url, *[LOAD] * 4, api="query", connections=4, timeout_seconds=60)
    for reading in readings:
        np.testing.assert_array_equal(EXPECTED, values(reading))


def test_layouts_of_jobs_long_gone_are_forgotten(server: FakeServer, monkeypatch) -> None:
    monkeypatch.setattr(grid_reader, "_MOST_ROWS", 3)
    server.responses["query"] = matrix([ONE, {"metric": {"node": "b"}, "values": [[1, "7"]]}])
    with GridReader(ReadingSettings(server.url, api="query", max_age_seconds=5)) as reader:
        for job in range(9):
            for _ in range(2):
                selection = Selection("load", "x", (Matcher("job_id", "=", f"{job}"),))
                np.testing.assert_array_equal(EXPECTED, values(reader.read([selection], GRID)[0]))
            assert [selection] == list(reader._layouts)


def test_closing_breaks_off_what_is_under_way(server: FakeServer) -> None:
    asked = threading.Event()

    def stall(handler: Handler, _: ReceivedRequest) -> None:
        asked.set()
        server.release.wait(60)

    server.responses["query"] = stall
    limits = {"timeout_seconds": 600, "deadline_seconds": 600}
    reader = GridReader(ReadingSettings(server.url, api="query", **limits))
    found: list[Reading] = []
    # More than there are threads: the rest is never begun.
    reading = threading.Thread(target=lambda: found.extend(reader.read([LOAD] * 9, GRID)))
    reading.start()
    assert asked.wait(60)
    reader.close()
    reading.join(60)
    assert not reading.is_alive()
    assert {"unreachable", "truncated"} >= {
        answer.outcome.reason for answer in found if isinstance(answer.outcome, ReadError)
    }
    assert 9 == len(found)


def test_headers_and_credentials_are_sent_and_no_compression_is_asked_for(
    server: FakeServer,
) -> None:
    server.responses["query"] = matrix([ONE])
    url = server.url.replace("http://", "http://user:pass%20word@") + "/prefix/"
    read(url, api="query", headers={"X-Scope-OrgID": "tenant"})
    asked = server.asked[0]
    assert "/prefix/api/v1/query" == asked.path
    assert ("identity", "tenant", "Basic dXNlcjpwYXNzIHdvcmQ=") == (
        asked.headers["Accept-Encoding"],
        asked.headers["X-Scope-OrgID"],
        asked.headers["Authorization"],
    )


def test_compression_that_nobody_asked_for_is_undone(server: FakeServer) -> None:
    body = gzip.compress(
        json.dumps(
            {"status": "success", "data": {"resultType": "matrix", "result": [ONE] * 2000}}
        ).encode()
    )
    server.responses["query"] = send(200, body, Content_Encoding="gzip")
    (reading,), _ = read(server.url, api="query")
    np.testing.assert_array_equal(EXPECTED, values(reading))


def test_tls_trusts_the_bundle_that_requests_would(monkeypatch, tmp_path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    with fake_server(context) as server:
        server.responses["query"] = matrix([ONE])
        (reading,), _ = read(server.url, api="query")
        assert "certificate verify failed" in str(reading.outcome)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
        (reading,), _ = read(server.url, api="query")
        np.testing.assert_array_equal(EXPECTED, values(reading))


def test_a_proxy_gets_the_whole_address(server: FakeServer, monkeypatch) -> None:
    server.responses["query"] = matrix([ONE])
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    (reading,), _ = read("http://prometheus.invalid:9090/p", api="query")
    np.testing.assert_array_equal(EXPECTED, values(reading))
    assert "http://prometheus.invalid:9090/p/api/v1/query" == server.asked[0].path


def test_all_is_compiled_before_the_first_question(server: FakeServer) -> None:
    server.responses |= {
        "read": chunked(FRAMES, content_type=STREAMED),
        "export": send(200, LINES, "application/stream+json"),
        "query": matrix([ONE]),
    }
    rate = Selection("rate", "bytes_total", rate_seconds=2)
    for api in ("remote_read", "export", "query"):
        for reading in read(server.url, LOAD, rate, api=api)[0]:
            reading.result()
    for function in (decode_frames, decode_matrix, decode_lines, close_rows, rates):
        assert 1 == len(function.signatures)  # type: ignore[attr-defined]
