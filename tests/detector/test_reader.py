from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
import requests

from detector.fake_prometheus import (
    Answer,
    FakePrometheus,
    broken_chunks,
    cut_off,
    fake_prometheus,
    free_port,
    hang_up,
    refuse,
    send,
    success,
)
from peerwatch_detector.config import PrometheusConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reader import PrometheusReader

MATRIX = [
    {"metric": {"__name__": "load", "node": "a"}, "values": [[10, "1"], [11.5, "NaN"]]},
    {"metric": {"node": "b"}, "values": [[10, "+Inf"], [11, "-Inf"], [12, "2.5e3"]]},
]


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus(success("vector", [])) as running:
        yield running


def reader_of(server: FakePrometheus, **settings: object) -> PrometheusReader:
    return PrometheusReader(
        PrometheusConfig.model_validate({"url": server.url, "timeout_seconds": 5} | settings)
    )


def test_a_vector_becomes_series_of_one_sample(server: FakePrometheus) -> None:
    server.answer = success("vector", [{"metric": {"node": "a"}, "value": [10.5, "3"]}])
    reader = reader_of(server)
    (one,) = reader.instant("up")
    assert ({"node": "a"}, [10.5], [3.0]) == (one.labels, one.times.tolist(), one.values.tolist())
    assert ("/api/v1/query", "up") == (server.requests[0].path, server.requests[0].form["query"])
    assert (1, True, {}) == (
        reader.statistics.samples,
        reader.statistics.up,
        reader.statistics.errors,
    )


def test_an_empty_answer_is_no_error(server: FakePrometheus) -> None:
    reader = reader_of(server)
    assert [] == reader.instant("up")
    server.answer = success("matrix", [])
    assert [] == reader.raw_range("up", 0, 10)
    assert [] == reader.stepped_range("up", 0, 10, 1)
    assert reader.statistics.up


def test_a_raw_range_asks_a_range_selector_at_its_end(server: FakePrometheus) -> None:
    server.answer = success("matrix", MATRIX)
    first, second = reader_of(server).raw_range('load{job_id="j"}', 1000.0, 1020.0)
    form = server.requests[0].form
    assert ('load{job_id="j"}[20s]', "1020.000") == (form["query"], form["time"])
    assert {"node": "a"} == first.labels
    assert [10.0, 11.5] == first.times.tolist()
    np.testing.assert_equal(first.values, [1, math.nan])
    assert [math.inf, -math.inf, 2500.0] == second.values.tolist()


@pytest.mark.parametrize(
    ("length", "expected"), [(12.5, "12500ms"), (0.1, "100ms"), (3.0, "3s"), (0.0, "1ms")]
)
def test_a_range_of_parts_of_a_second_is_asked_in_milliseconds(
    server: FakePrometheus, length: float, expected: str
) -> None:
    server.answer = success("matrix", MATRIX)
    reader_of(server).raw_range("load", 1000.0, 1000.0 + length)
    form = server.requests[0].form
    assert (f"load[{expected}]", f"{1000 + length:.3f}") == (form["query"], form["time"])


def test_samples_are_counted(server: FakePrometheus) -> None:
    server.answer = success("matrix", MATRIX)
    reader = reader_of(server)
    reader.raw_range("load", 0, 10)
    reader.raw_range("load", 0, 10)
    assert 10 == reader.statistics.samples


@pytest.mark.parametrize(
    ("answer", "reason", "text"),
    [
        (refuse(400, "bad_data", "parse error: x"), "http_4xx", "answered 400: parse error: x"),
        (refuse(422, "execution", "many-to-many"), "refused", "answered 422: many-to-many"),
        (refuse(500, "internal", "disk"), "http_5xx", "answered 500: disk"),
        (send(503, b"<html>Busy</html>", "text/html"), "http_5xx", "503: <html>Busy</html>"),
        (send(503, b""), "http_5xx", "503: no text"),
        (send(404, b"nothing here", "text/plain"), "http_4xx", "404: nothing here"),
        (send(401, b"\xff\xfe"), "http_4xx", "answered 401"),
        (refuse(200, "bad_data", "odd"), "malformed", "odd"),
        (send(200, b"<html>Login</html>"), "malformed", "not JSON"),
        (send(200, b""), "malformed", "not JSON"),
        (send(200, b"[]"), "malformed", "answered 200"),
        (send(200, b'{"status":"success"}'), "malformed", "Expected a vector"),
        (send(200, b'{"status":"success","data":[1]}'), "malformed", "Expected a vector"),
        (send(200, b'{"status":"success","data":"x"}'), "malformed", "Expected a vector"),
        (success("matrix", []), "malformed", "Expected a vector, got 'matrix'"),
        (success("vector", [{"metric": {}}]), "malformed", "unexpected form"),
        (success("vector", [{"metric": {}, "value": [1]}]), "malformed", "unexpected form"),
        (success("vector", [{"metric": {}, "value": [1, "x"]}]), "malformed", "unexpected form"),
        (success("vector", [{"metric": 5, "value": [1, "2"]}]), "malformed", "unexpected form"),
        (success("vector", ["x"]), "malformed", "unexpected form"),  # type: ignore[list-item]
        (send(200, b'{"status":"success","data":{"resu'), "truncated", "mid-answer"),
        (cut_off(b'{"status":', 500), "truncated", "mid-answer"),
        (broken_chunks, "truncated", "mid-answer"),
        (hang_up, "unreachable", "cannot be reached"),
    ],
)
def test_whatever_goes_wrong_has_a_reason_and_is_counted(
    server: FakePrometheus, answer: Answer, reason: str, text: str
) -> None:
    server.answer = answer
    reader = reader_of(server)
    with pytest.raises(ReadError) as caught:
        reader.instant("up")
    assert reason == caught.value.reason
    assert text in str(caught.value)
    assert ({reason: 1}, False) == (reader.statistics.errors, reader.statistics.up)
    assert 0 == reader.statistics.samples


def test_an_answer_without_data_of_a_matrix_is_malformed(server: FakePrometheus) -> None:
    server.answer = success("matrix", [{"metric": {}, "values": []}])
    with pytest.raises(ReadError, match="unexpected form"):
        reader_of(server).raw_range("load", 0, 10)


def test_a_server_that_does_not_answer_in_time_times_out(server: FakePrometheus) -> None:
    server.answer = lambda _: server.release.wait(10) and None
    reader = reader_of(server, timeout_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(ReadError, match=r"within 0\.2 s") as caught:
        reader.instant("up")
    assert "timeout" == caught.value.reason
    assert time.monotonic() - began < 5
    assert "0.2s" == server.requests[0].form["timeout"]


def test_a_server_that_stalls_in_mid_answer_times_out(server: FakePrometheus) -> None:
    def stall(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.wfile.flush()
        server.release.wait(10)

    server.answer = stall
    with pytest.raises(ReadError) as caught:
        reader_of(server, timeout_seconds=0.2).instant("up")
    assert "timeout" == caught.value.reason


def test_a_refused_connection_tells_the_address_and_what_to_check() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    reader = PrometheusReader(PrometheusConfig(url=url))
    with pytest.raises(ReadError) as caught:
        reader.instant("up")
    assert "unreachable" == caught.value.reason
    assert url in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "check prometheus.url" in str(caught.value)


def test_a_host_name_that_does_not_resolve_is_unreachable() -> None:
    reader = PrometheusReader(PrometheusConfig(url="http://peerwatch.invalid:9090"))
    with pytest.raises(ReadError) as caught:
        reader.instant("up")
    assert "unreachable" == caught.value.reason


def test_the_reader_recovers_when_the_server_does(server: FakePrometheus) -> None:
    reader = reader_of(server)
    good, server.answer = server.answer, refuse(503, "unavailable", "starting")
    for _ in range(3):
        with pytest.raises(ReadError):
            reader.instant("up")
    server.answer = good
    assert [] == reader.instant("up")
    assert (True, {"http_5xx": 3}) == (reader.statistics.up, reader.statistics.errors)


def test_no_compression_is_asked_for_and_headers_are_sent(server: FakePrometheus) -> None:
    reader_of(server, headers={"Authorization": "Bearer abc"}).instant("up")
    headers = server.requests[0].headers
    assert ("identity", "Bearer abc") == (headers["Accept-Encoding"], headers["Authorization"])


def test_an_injected_session_is_used(server: FakePrometheus) -> None:
    with requests.Session() as session:
        session.headers["X-Scope-OrgID"] = "tenant"
        PrometheusReader(PrometheusConfig(url=server.url), session).instant("up")
    assert "tenant" == server.requests[0].headers["X-Scope-OrgID"]


def test_a_slash_at_the_end_of_the_url_does_no_harm(server: FakePrometheus) -> None:
    reader_of(server, url=f"{server.url}/prefix/").instant("up")
    assert "/prefix/api/v1/query" == server.requests[0].path


def every_step(server: FakePrometheus) -> Answer:
    """Answer a range query with one sample per step, as Prometheus would, and its limit."""

    def answer(handler) -> None:
        form = server.requests[-1].form
        start, end, step = (float(form[name]) for name in ("start", "end", "step"))
        count = math.floor((end - start) / step + 1e-9) + 1
        if count > 11_000:
            refuse(400, "bad_data", "exceeded maximum resolution")(handler)
            return
        times = [start + step * k for k in range(count)]
        result = [
            {"metric": {"node": node}, "values": [[t, str(t + shift)] for t in times]}
            for node, shift in (("a", 0), ("b", 1))
            if node == "a" or start == 0
        ]
        success("matrix", result)(handler)

    return answer


@pytest.mark.parametrize(
    ("end", "step", "parts"), [(0, 1, 1), (10_999, 1, 1), (11_000, 1, 2), (30_000, 2, 2)]
)
def test_long_ranges_are_read_in_parts_and_joined(
    server: FakePrometheus, end: int, step: int, parts: int
) -> None:
    server.answer = every_step(server)
    first, second = reader_of(server).stepped_range("load", 0, end, step)
    assert parts == len(server.requests)
    assert {"/api/v1/query_range"} == {request.path for request in server.requests}
    expected = np.arange(0, end + 1, step, dtype=float)
    np.testing.assert_array_equal(first.times, expected)
    np.testing.assert_array_equal(first.values, expected)
    assert min(len(expected), 11_000) == len(second.times)


def test_a_large_answer_is_read_whole(server: FakePrometheus) -> None:
    values = [[t, str(t / 7)] for t in range(5_000)]
    result = [{"metric": {"node": str(k)}, "values": values} for k in range(10)]
    server.answer = success("matrix", result)
    found = reader_of(server).raw_range("load", 0, 5_000)
    assert 10 == len(found)
    np.testing.assert_allclose(found[9].values, np.arange(5_000) / 7)
    assert 50_000 == sum(len(one.times) for one in found)
