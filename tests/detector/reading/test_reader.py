from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from detector.fake_prometheus import (
    FakePrometheus,
    Response,
    broken_chunks,
    cut_off,
    fake_prometheus,
    hang_up,
    refuse,
    send,
    success,
)
from peerwatch_demo.stack.process import free_ports
from peerwatch_detector.config import DetectorConfig, PrometheusConfig
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import PartialAnswer
from peerwatch_detector.reading import Matcher, ReadingSettings, Selection
from peerwatch_detector.reading.reader import (
    PrometheusReader,
    config_reader,
    history_reader,
    instant_reader,
    reading_settings,
    root_reader,
    selection_of,
)
from peerwatch_detector.reading.transport.connection import Connection

Readers = Callable[..., PrometheusReader]


@pytest.fixture
def server() -> Iterator[FakePrometheus]:
    with fake_prometheus(success("vector", [])) as running:
        yield running


@pytest.fixture
def reader_of(server: FakePrometheus) -> Iterator[Callable[..., PrometheusReader]]:
    """Open readers on the server, and close them at the end."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            PrometheusReader(
                PrometheusConfig.model_validate(
                    {"url": server.url, "timeout_seconds": 60} | settings
                )
            )
        )


def test_a_vector_becomes_series_of_one_sample(server: FakePrometheus, reader_of: Readers) -> None:
    server.response = success("vector", [{"metric": {"node": "a"}, "value": [10.5, "3"]}])
    reader = reader_of()
    (series,) = reader.instant("up")
    assert ({"node": "a"}, [10.5], [3.0]) == (
        series.labels,
        series.times.tolist(),
        series.values.tolist(),
    )
    assert ("/api/v1/query", "up") == (server.requests[0].path, server.requests[0].form["query"])
    assert (1, True, {}) == (
        reader.statistics.samples,
        reader.statistics.up,
        reader.statistics.errors,
    )


def test_a_partial_answer_says_so_or_is_refused(server: FakePrometheus, reader_of: Readers) -> None:
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [10, "1"]}]}
    said = {"status": "success", "data": data, "warnings": ["store gone"]}
    server.response = send(200, json.dumps(said).encode())
    kept = reader_of()
    assert isinstance(kept.instant("up"), PartialAnswer)
    assert 1 == kept.statistics.partial
    assert "partial_response" not in server.requests[-1].form
    with pytest.raises(ReadError, match="partial response: store gone") as raised:
        reader_of(reading={"partial": "refuse"}).instant("up")
    assert "refused" == raised.value.reason
    assert "false" == server.requests[-1].form["partial_response"]
    server.response = success("vector", [])
    assert not isinstance(kept.instant("up"), PartialAnswer)


def test_an_answer_that_is_known_but_for_its_time_is_the_answer(
    server: FakePrometheus, reader_of: Readers
) -> None:
    reader = reader_of()
    trap = {"node": 'a"value":[10.5,'}
    answers = [
        [({"node": "a"}, 10.5, "3"), (trap, 10.5, "10.5")],
        [({"node": "a"}, 11, "3"), (trap, 11, "10.5")],
        # Another value, another node, one that is gone, and times that differ.
        [({"node": "a"}, 12, "4"), (trap, 12, "10.5")],
        [({"node": "b"}, 13, "4"), (trap, 13, "10.5")],
        [(trap, 14, "10.5")],
        [({"node": "b"}, 15, "4"), (trap, 16, "10.5")],
        [({"node": "b"}, 17, "4"), (trap, 16, "10.5")],
        [],
        [(trap, 18, "NaN")],
    ]
    for answer in [*answers, *answers]:
        rows = [{"metric": dict(labels), "value": [when, text]} for labels, when, text in answer]
        server.response = success("vector", rows)
        found = reader.instant("up")
        assert [(labels, [float(when)]) for labels, when, _ in answer] == [
            (series.labels, series.times.tolist()) for series in found
        ]
        values = [series.values for series in found]
        np.testing.assert_array_equal([[float(text)] for *_, text in answer], values)


def test_a_label_that_is_not_utf_8_costs_nothing_else(
    server: FakePrometheus, reader_of: Readers
) -> None:
    """VictoriaMetrics takes such a label, and hands it out as it came."""
    row = b'{"metric":{"node":"%s"},"value":[10,"1"]}'
    rows = b",".join(row % node for node in (b"a", b"b\xff", "é".encode()))
    server.response = send(
        200, b'{"status":"success","data":{"resultType":"vector","result":[' + rows + b"]}}"
    )
    reader = reader_of()
    assert ["a", "b\ufffd", "é"] == [series.labels["node"] for series in reader.instant("up")]
    assert (True, {}) == (reader.statistics.up, reader.statistics.errors)


def test_an_empty_answer_is_no_error(server: FakePrometheus, reader_of: Readers) -> None:
    reader = reader_of()
    assert [] == reader.instant("up")
    assert reader.statistics.up


@pytest.mark.parametrize(
    ("response", "reason", "text"),
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
        (send(200, b'{"status":"success"}'), "malformed", "answered 200"),
        (send(200, b'{"status":"success","data":[1]}'), "malformed", "answered 200"),
        (send(200, b'{"status":"success","data":"x"}'), "malformed", "answered 200"),
        (success("matrix", []), "malformed", "expected a vector, got 'matrix'"),
        (success("vector", [{"metric": {}}]), "malformed", "unexpected form"),
        (success("vector", [{"metric": {}, "value": [1]}]), "malformed", "unexpected form"),
        (success("vector", [{"metric": {}, "value": [1, "x"]}]), "malformed", "unexpected form"),
        (success("vector", [{"metric": 5, "value": [1, "2"]}]), "malformed", "unexpected form"),
        (success("vector", ["x"]), "malformed", "unexpected form"),  # type: ignore[list-item]
        (send(200, b'{"status":"success","data":{"resu'), "truncated", "mid-response"),
        (cut_off(b'{"status":', 500), "truncated", "mid-response"),
        (broken_chunks, "truncated", "mid-response"),
        (hang_up, "unreachable", "cannot be reached"),
    ],
)
def test_whatever_goes_wrong_has_a_reason_and_is_counted(
    server: FakePrometheus, reader_of: Readers, response: Response, reason: str, text: str
) -> None:
    server.response = response
    reader = reader_of()
    with pytest.raises(ReadError) as caught:
        reader.instant("up")
    assert reason == caught.value.reason
    assert text in str(caught.value)
    assert ({reason: 1}, False) == (reader.statistics.errors, reader.statistics.up)
    assert 0 == reader.statistics.samples


def test_a_server_that_does_not_answer_in_time_times_out(
    server: FakePrometheus, reader_of: Readers
) -> None:
    server.response = lambda _: server.release.wait(60) and None
    reader = reader_of(timeout_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(ReadError, match=r"within 0\.2 s") as caught:
        reader.instant("up")
    assert "timeout" == caught.value.reason
    assert time.monotonic() - began < 30
    assert "0.2s" == server.requests[0].form["timeout"]


def test_a_server_that_stalls_in_mid_answer_times_out(
    server: FakePrometheus, reader_of: Readers
) -> None:
    def stall(handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.wfile.flush()
        server.release.wait(10)

    server.response = stall
    with pytest.raises(ReadError) as caught:
        reader_of(timeout_seconds=0.2).instant("up")
    assert "timeout" == caught.value.reason


def test_a_refused_connection_tells_the_address_and_what_to_check(
    reader_of: Readers,
) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    reader = reader_of(url=url)
    with pytest.raises(ReadError) as caught:
        reader.instant("up")
    assert "unreachable" == caught.value.reason
    assert url in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "check prometheus.url" in str(caught.value)


def test_a_host_name_that_does_not_resolve_is_unreachable(reader_of: Readers) -> None:
    reader = reader_of(url="http://peerwatch.invalid:9090")
    with pytest.raises(ReadError) as caught:
        reader.instant("up")
    assert "unreachable" == caught.value.reason


def test_the_reader_recovers_when_the_server_does(
    server: FakePrometheus, reader_of: Readers
) -> None:
    reader = reader_of(reading={"longest_wait_seconds": 0.001})
    good, server.response = server.response, refuse(503, "unavailable", "starting")
    for _ in range(2):
        with pytest.raises(ReadError):
            reader.instant("up")
    server.response = good
    # A wait of a millisecond at most.
    until(lambda: [] == reader.instant("up"))
    assert (True, {"http_5xx": 2}) == (reader.statistics.up, reader.statistics.errors)


def test_no_compression_is_asked_for_and_headers_are_sent(
    server: FakePrometheus, reader_of: Readers
) -> None:
    reader_of(headers={"Authorization": "Bearer abc"}).instant("up")
    headers = server.requests[0].headers
    assert ("identity", "Bearer abc") == (headers["Accept-Encoding"], headers["Authorization"])


def test_a_token_that_is_exchanged_in_its_file_is_sent_at_once(
    server: FakePrometheus, reader_of: Readers, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    reader = reader_of(bearer_token_file=str(file), reading={"longest_wait_seconds": 0})
    # The last one as editors of Windows write it.
    for token, coding in (("one", "utf-8"), ("two", "utf-8"), ("three", "utf-8-sig")):
        file.write_text(f"{token}\n", encoding=coding)
        reader.instant("up")
        assert f"Bearer {token}" == server.requests[-1].headers["Authorization"]
    for spoil in (lambda: file.write_text(" \n"), file.unlink, file.mkdir):
        spoil()
        with pytest.raises(ReadError, match=r"bearer_token_file '.*token'") as caught:
            reader.instant("up")
        assert "unreachable" == caught.value.reason
    assert 3 == len(server.requests)


def test_one_authorization_is_enough() -> None:
    with pytest.raises(ValidationError, match="give one of the two"):
        PrometheusConfig(bearer_token_file="/token", headers={"authorization": "Basic abc"})


@pytest.mark.parametrize(
    ("url", "proxy", "expected"),
    [
        ("http://[::1]", "", ("::1", 80)),
        ("https://[fe80::1]", "", ("fe80::1", 443)),
        ("http://[::1]:9090/p", "", ("::1", 9090)),
        ("http://prometheus", "http://[::1]", ("::1", 80)),
        # As requests does it: the port is that of the proxy's scheme.
        ("https://prometheus", "http://proxy", ("proxy", 80)),
        ("https://prometheus", "proxy:3128", ("proxy", 3128)),
    ],
)
def test_a_server_or_proxy_without_a_port_is_asked_at_its_schemes(
    url: str, proxy: str, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def connect(address: tuple[str, int], *_: object) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError

    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "create_connection", connect)
    connection = Connection(ReadingSettings(url))
    with pytest.raises(ReadError, match="cannot be reached"):
        connection.post("api/v1/query", b"", {}, time.monotonic() + 5)
    assert [expected] == tried


def test_a_slash_at_the_end_of_the_url_does_no_harm(
    server: FakePrometheus, reader_of: Readers
) -> None:
    reader_of(url=f"{server.url}/prefix/").instant("up")
    assert "/prefix/api/v1/query" == server.requests[0].path


def until(condition: Callable[[], bool]) -> None:
    """Try until a reader that waits asks again and the condition holds."""
    for _ in range(1000):
        try:
            assert condition()
        except ReadError:
            time.sleep(0.001)
        else:
            return
    raise AssertionError("The reader did not ask again.")


def test_a_server_that_failed_twice_is_left_alone_for_a_while(
    server: FakePrometheus, reader_of: Readers
) -> None:
    reader = reader_of(reading={"longest_wait_seconds": 3600})
    server.response = send(503, b"Busy")
    for _ in range(4):
        with pytest.raises(ReadError) as caught:
            reader.instant("up")
    assert "http_5xx" == caught.value.reason
    assert "Not asked for another" in str(caught.value)
    assert "answered 503: Busy" in str(caught.value)
    assert 2 == len(server.requests)
    assert 0 < reader.statistics.wait_seconds <= 1
    # Not asked is not failed.
    assert {"http_5xx": 2} == reader.statistics.errors


def test_a_request_that_is_refused_does_not_keep_others_waiting(
    server: FakePrometheus, reader_of: Readers
) -> None:
    reader = reader_of()
    server.response = refuse(422, "execution", "many-to-many")
    for _ in range(4):
        with pytest.raises(ReadError, match="many-to-many"):
            reader.instant("up")
    assert (4, 0.0) == (len(server.requests), reader.statistics.wait_seconds)


def test_a_moment_of_the_past_can_be_asked_for(server: FakePrometheus, reader_of: Readers) -> None:
    reader_of().instant("up", 1234.5)
    assert "1234.500" == server.requests[0].form["time"]


def test_the_configuration_without_a_file_is_that_of_the_readers() -> None:
    config = PrometheusConfig()
    assert ReadingSettings(config.url) == reading_settings(config)


def test_every_setting_of_reading_reaches_the_reader() -> None:
    changed = {
        "api": "export",
        "connections": 3,
        "deadline_seconds": 11.0,
        "max_age_seconds": 12.0,
        "overlap_seconds": 13.0,
        "increment_seconds": 14.0,
        "max_points": 150,
        "max_samples": 160_000,
        "max_series": 170,
        "max_response_bytes": 1_800_000,
        "max_splits": 19,
        "partial": "refuse",
        "longest_wait_seconds": 20.0,
    }
    outside = {
        "headers": {"X-Scope-OrgID": "a"},
        "bearer_token_file": "/token",
        "timeout_seconds": 21.0,
        "lag_seconds": 22.0,
    }
    config = PrometheusConfig.model_validate({"url": "http://x", "reading": changed, **outside})
    settings = asdict(reading_settings(config))
    assert "prometheus.timeout_seconds" == settings.pop("timeout_setting")
    assert {"url": "http://x", **outside, **changed} == settings


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "joined"])
def test_a_metric_is_read_as_recorded_or_joined(recorded: bool) -> None:
    config = DetectorConfig.model_validate({"prometheus": {"recorded": recorded}})
    metric = config.detection_metrics()[0]
    found = selection_of(metric, "j", config)
    of_job = (Matcher("job_id", "=", "j"),)
    assert Selection(metric.name, metric.recorded, of_job, expression=found.expression) == found
    assert recorded == (found.expression is None)
    assert recorded or 'job_id="j"' in (found.expression or "")


def test_a_metric_of_the_fast_endpoint_is_read_by_node_or_joined() -> None:
    config = DetectorConfig(preset="fast")
    power = next(
        metric_config
        for metric_config in config.detection_metrics()
        if metric_config.name == "gpu_power"
    )
    joined = DetectorConfig(preset="fast", prometheus=PrometheusConfig(recorded=False))

    assert Selection("gpu_power", "fast_gpu_power_watts", by_node=True) == selection_of(
        power, "j", config
    )
    assert 'fast_gpu_job_info{job_id="j"}' in (selection_of(power, "j", joined).expression or "")


@pytest.mark.parametrize(
    ("reader", "setting"),
    [
        (instant_reader, "raise diagnosis.timeout_seconds or check"),
        (config_reader, "raise diagnosis.config_timeout_seconds or check"),
        (root_reader, "raise diagnosis.root_timeout_seconds or check"),
        (history_reader, "; check the server's load."),
        (lambda config: PrometheusReader(config.prometheus), "raise prometheus.timeout_seconds or"),
    ],
)
def test_a_time_out_names_the_setting_that_bounds_it(reader: Any, setting: str) -> None:
    made = reader(DetectorConfig())
    assert setting in f"; {made.settings.after_timeout}"
    made.close()
