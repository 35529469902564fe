"""Connections, headers, encryption and proxies of the grid's reader."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import trustme

from detector.reading.fake_server import (
    FakeServer,
    Handler,
    ReceivedRequest,
    chunked,
    fake_server,
    matrix,
    send,
)
from detector.reading_server import EXPECTED, FRAMES, GRID, LINES, LOAD, ONE, STREAMED, read, values
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import (
    GridReader,
    Matcher,
    Reading,
    ReadingSettings,
    Selection,
    known_layouts,
)
from peerwatch_detector.reading.decode.export_lines import decode_lines
from peerwatch_detector.reading.decode.frames import decode_frames
from peerwatch_detector.reading.decode.grid_writer import close_rows, rates
from peerwatch_detector.reading.decode.matrix import decode_matrix


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


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
    monkeypatch.setattr(known_layouts, "_MOST_ROWS", 3)
    server.responses["query"] = matrix([ONE, {"metric": {"node": "b"}, "values": [[1, "7"]]}])
    with GridReader(ReadingSettings(server.url, api="query", max_age_seconds=5)) as reader:
        for job in range(9):
            for _ in range(2):
                selection = Selection("load", "x", (Matcher("job_id", "=", f"{job}"),))
                np.testing.assert_array_equal(EXPECTED, values(reader.read([selection], GRID)[0]))
            assert [selection] == list(reader._layouts.selections)


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


def test_all_is_compiled_before_the_first_request(server: FakeServer) -> None:
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
