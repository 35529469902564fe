"""The server over real sockets: paths, formats, limits, and clients that misbehave."""

from __future__ import annotations

import contextlib
import gzip
import re
import socket
import threading

import pytest

from peerwatch_common.web import connection as connection_module
from peerwatch_common.web.response import SECURITY_HEADERS
from peerwatch_common.web.server import HttpServer, ListenError
from peerwatch_exporter.web.app import App
from web_client import (
    DETECTOR,
    EXPORTER,
    OPENMETRICS_EXPOSITION,
    TEXT_EXPOSITION,
    FakeEndpoints,
    ask,
    eventually,
    everything,
    raw,
    serving,
)

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
def endpoints():
    return FakeEndpoints()


@pytest.fixture
def server(endpoints):
    with serving(endpoints) as result:
        yield result


def test_metrics_are_served_as_text(server):
    status, headers, body = ask(server.port, "/metrics")
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (status, headers["Content-Type"])
    assert TEXT_EXPOSITION == body
    assert headers["Date"].endswith(" GMT")


def test_openmetrics_is_served_to_who_asks_for_it(server):
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    status, headers, body = ask(server.port, "/metrics", Accept=accept)
    content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert (200, content_type) == (status, headers["Content-Type"])
    assert OPENMETRICS_EXPOSITION == body


def test_exposition_is_compressed_for_who_accepts_it(server):
    status, headers, body = ask(server.port, "/metrics", Accept_Encoding="gzip")
    assert (200, "gzip") == (status, headers["Content-Encoding"])
    assert "Accept-Encoding" in headers["Vary"]
    assert int(headers["Content-Length"]) == len(body) < len(TEXT_EXPOSITION)
    assert TEXT_EXPOSITION == gzip.decompress(body)


@pytest.mark.parametrize("compressed", [False, True])
def test_second_scrape_on_a_connection_is_answered_like_the_first(server, compressed):
    """The first head is made by h11, the second one without it."""
    accept = b"Accept-Encoding: gzip\r\n" if compressed else b""
    question = b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + accept + b"\r\n"
    answers = []
    with raw(server.port) as connection:
        for _ in range(3):
            connection.sendall(question)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(65536)
            head, _, body = answer.partition(b"\r\n\r\n")
            length = int(re.search(rb"Content-Length: (\d+)", head)[1])
            while len(body) < length:
                body += connection.recv(65536)
            answers.append((re.sub(rb"Date: [^\r]+", b"", head), body))
    assert answers[0] == answers[1] == answers[2]
    assert TEXT_EXPOSITION == (gzip.decompress(answers[2][1]) if compressed else answers[2][1])


def test_small_exposition_is_not_compressed(server):
    _, headers, body = ask(server.port, "/metrics/fast", Accept_Encoding="gzip")
    assert (None, b"fast_up 1\n") == (headers["Content-Encoding"], body)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/", 200, b"<html>"),
        ("/-/healthy", 200, b"peerwatch-exporter is healthy.\n"),
        ("/-/ready", 200, b"ready\n"),
        ("/metric", 404, b"/metrics/fast"),
        ("/metrics/", 404, b"/metrics/fast"),
        ("/burst", 404, b"sampler.interval_milliseconds"),
    ],
)
def test_path_is_answered(server, path, status, text):
    answer = ask(server.port, path)
    assert status == answer.status
    assert text in answer.body


def test_readiness_is_the_endpoints(server, endpoints):
    endpoints.ready = (False, "Every collector is stuck: gpu.")
    answer = ask(server.port, "/-/ready")
    assert (503, b"Every collector is stuck: gpu.\n") == (answer.status, answer.body)
    assert 200 == ask(server.port, "/-/healthy").status


@pytest.mark.parametrize(
    ("line", "status"), [("200 OK", 200), ("400 Bad Request", 400), ("garbled", 500)]
)
def test_burst_is_answered_by_the_sampler(endpoints, line, status):
    with serving(endpoints, burst=lambda query: (line, f"[{query!r}]".encode())) as server:
        answer = ask(server.port, "/burst?metric=a&seconds=2")
    assert (status, b"['metric=a&seconds=2']") == (answer.status, answer.body)
    assert "application/json" == answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("header", "seconds"), [({}, 5.0), ({"10": "10"}, 9.5), ({"soon": "soon"}, 5.0)]
)
def test_scrape_timeout_reaches_the_endpoints(server, endpoints, header, seconds):
    for value in header or [None]:
        sent = {} if value is None else {"X_Prometheus_Scrape_Timeout_Seconds": value}
        ask(server.port, "/metrics", **sent)
        ask(server.port, "/metrics/fast", **sent)
    assert [("full", False, seconds), ("fast", False, "127.0.0.1", seconds)] == endpoints.asked


@pytest.mark.parametrize(
    ("query", "scraper"),
    [
        ("", "127.0.0.1"),
        ("?scraper=", "127.0.0.1"),
        ("?scraper=prometheus-0%3A1", "prometheus-0:1"),
    ],
)
def test_scraper_is_the_name_given_or_the_address(server, endpoints, query, scraper):
    assert 200 == ask(server.port, f"/metrics/fast{query}").status
    assert scraper == endpoints.asked[0][2]


@pytest.mark.parametrize("name", ["a%20b", "%00", 65 * "x", "%C3%A4"])
def test_impossible_scraper_is_refused(server, endpoints, name):
    answer = ask(server.port, f"/metrics/fast?scraper={name}")
    assert 400 == answer.status
    assert b"1 to 64 letters" in answer.body
    assert [] == endpoints.asked


def test_other_methods_are_refused(server):
    answer = ask(server.port, "/metrics", method="POST")
    assert (405, "GET, HEAD") == (answer.status, answer.headers["Allow"])


def test_request_with_a_body_is_refused_and_the_answer_arrives(server):
    with raw(server.port) as connection:
        body = 200_000 * b"x"
        start = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"
        connection.sendall(start + body[:60_000])
        assert everything(connection).startswith(b"HTTP/1.1 413 ")


def test_head_has_the_length_but_no_body(server):
    answer = ask(server.port, "/metrics", method="HEAD")
    assert (200, b"") == (answer.status, answer.body)
    assert str(len(TEXT_EXPOSITION)) == answer.headers["Content-Length"]


def test_head_of_the_fast_endpoint_takes_no_samples_from_the_scraper(server, endpoints):
    assert 200 == ask(server.port, "/metrics/fast?scraper=prometheus-0", method="HEAD").status
    assert 200 == ask(server.port, "/metrics/fast?scraper=prometheus-0").status
    assert [None, "prometheus-0"] == [scraper for _, _, scraper, _ in endpoints.asked]


def test_connection_serves_request_after_request(server):
    with raw(server.port) as connection:
        connection.sendall(REQUEST + REQUEST + LAST_REQUEST)
        answers = everything(connection)
    assert 3 == answers.count(b"HTTP/1.1 200 OK\r\n")
    assert 3 * TEXT_EXPOSITION == b"".join(
        part[: len(TEXT_EXPOSITION)] for part in answers.split(b"\r\n\r\n")[1:]
    )
    assert 1 == answers.count(b"Connection: close")


def test_old_client_is_served_and_the_connection_closed(server):
    with raw(server.port) as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        assert everything(connection).endswith(b"peerwatch-exporter is healthy.\n")


def test_garbage_is_answered_400(server):
    with raw(server.port) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00 hello\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 400 ")
    assert 200 == ask(server.port, "/-/healthy").status


def test_exposition_that_fails_is_a_500_and_the_next_one_is_served(server, endpoints, monkeypatch):
    failing = FakeEndpoints()
    failing.full = lambda **_: 1 / 0
    monkeypatch.setattr(server._service.app._app, "_exposition", failing)
    answer = ask(server.port, "/metrics")
    assert (500, b"log") == (answer.status, answer.body[-14:-11])
    monkeypatch.undo()
    assert 200 == ask(server.port, "/metrics").status


def test_client_that_never_completes_its_request_is_told_so(server, monkeypatch):
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 0.2)
    with raw(server.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
        assert everything(connection).startswith(b"HTTP/1.1 408 ")


def test_client_that_drips_bytes_is_cut_off_all_the_same(server, monkeypatch):
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", 0.3)
    with raw(server.port) as connection:
        stop = threading.Event()

        def drip():
            try:
                connection.sendall(b"GET / HTTP/1.1\r\n")
                while not stop.wait(0.05):
                    connection.sendall(b"a")
            except OSError:
                pass

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert everything(connection).startswith(b"HTTP/1.1 408 ")
        finally:
            stop.set()
            dripping.join()


def test_idle_client_is_closed_in_time(server, monkeypatch):
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 0.2)
    with raw(server.port) as connection:
        assert b"" == everything(connection)


def test_client_that_does_not_read_is_dropped(endpoints, monkeypatch):
    monkeypatch.setattr(connection_module, "SEND_SECONDS", 0.2)
    asked = threading.Event()
    endpoints.full = lambda **_: (asked.set(), 30_000_000 * b"x")[1]
    with serving(endpoints) as server, raw(server.port) as connection:
        connection.sendall(REQUEST)
        assert asked.wait(60)
        eventually(lambda: not len(server._connections))


def test_new_client_takes_the_place_of_the_one_that_idled_longest(endpoints):
    with serving(endpoints, max_connections=2) as server, raw(server.port) as first:
        eventually(lambda: len(server._connections) == 1)
        with raw(server.port) as second:
            eventually(lambda: len(server._connections) == 2)
            eventually(lambda: None not in [each.idle_since for each in server._connections])
            assert 200 == ask(server.port, "/-/healthy").status
            assert b"" == everything(first)
            second.sendall(LAST_REQUEST)
            assert everything(second).startswith(b"HTTP/1.1 200 OK")
        assert 0 == server.facts.rejected_connections


def test_clients_with_half_a_request_keep_nobody_out(endpoints):
    with (
        serving(endpoints, max_connections=2) as server,
        raw(server.port) as first,
        raw(server.port) as second,
    ):
        for connection in (first, second):
            connection.sendall(REQUEST[:10])
        eventually(lambda: len(server._connections) == 2)
        eventually(lambda: all(each._deadline for each in server._connections))
        assert 200 == ask(server.port, "/-/healthy").status
        assert 0 == server.facts.rejected_connections


@pytest.mark.parametrize("program", [EXPORTER, DETECTOR])
def test_probes_are_answered_while_all_connections_are_served_and_others_turned_away(
    endpoints, program
):
    endpoints.gate.clear()
    with (
        serving(endpoints, program=program, max_connections=2) as server,
        raw(server.port) as first,
        raw(server.port) as second,
    ):
        for connection in (first, second):
            connection.sendall(LAST_REQUEST)
            assert endpoints.entered.acquire(timeout=300)
        # Nobody who comes now and says nothing keeps the probes out.
        with contextlib.ExitStack() as idle:
            for _ in range(20):
                idle.enter_context(raw(server.port))
            assert 200 == ask(server.port, "/-/healthy").status
            assert 200 == ask(server.port, "/-/ready").status
            before = server.facts.rejected_connections
            answer = ask(server.port, "/metrics")
        assert (503, "5") == (answer.status, answer.headers["Retry-After"])
        assert before + 1 == server.facts.rejected_connections
        endpoints.gate.set()
        for connection in (first, second):
            assert everything(connection).startswith(b"HTTP/1.1 200 OK")
        eventually(lambda: not len(server._connections))
        assert 200 == ask(server.port, "/-/healthy").status


def test_clients_that_do_not_read_keep_nobody_out(endpoints, monkeypatch):
    monkeypatch.setattr(connection_module, "SLOW_READER_SECONDS", 0.0)
    full = endpoints.full
    endpoints.full = lambda **_: 30_000_000 * b"x"
    with (
        serving(endpoints, max_connections=2, gzip=None) as server,
        raw(server.port) as first,
        raw(server.port) as second,
    ):
        for connection in (first, second):
            connection.sendall(REQUEST)
        eventually(lambda: len(server._connections) == 2)
        eventually(lambda: all(each._sending_since for each in server._connections))
        endpoints.full = full
        assert 200 == ask(server.port, "/metrics").status
        assert 0 == server.facts.rejected_connections


def test_who_opens_many_connections_replaces_its_own(endpoints):
    with serving(endpoints, max_connections=3) as server, raw(server.port) as scraper:
        scraper.sendall(REQUEST)
        eventually(lambda: endpoints.asked)
        eventually(lambda: None not in [each.idle_since for each in server._connections])
        (own,) = server._connections
        own.client = "10.0.0.1"
        with contextlib.ExitStack() as others:
            for _ in range(50):
                others.enter_context(raw(server.port))
            # Accepted one after the other: all those before this one have been.
            assert 200 == ask(server.port, "/-/healthy").status
            assert own in server._connections
            scraper.sendall(LAST_REQUEST)
            assert 2 == everything(scraper).count(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "header",
    [b"Content-Length: 1000000000", b"Content-Length: 4097", b"Transfer-Encoding: chunked"],
)
def test_large_body_is_refused_before_it_comes_whatever_the_method(server, header):
    with raw(server.port) as connection:
        connection.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n")
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("program", [EXPORTER, DETECTOR])
@pytest.mark.parametrize(
    "request_",
    [
        LAST_REQUEST,
        b"GET /no HTTP/1.0\r\n\r\n",
        b"garbage\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_every_answer_has_the_security_headers(endpoints, program, request_):
    with serving(endpoints, program=program) as server, raw(server.port) as connection:
        connection.sendall(request_)
        head = everything(connection).partition(b"\r\n\r\n")[0].decode()
    sent = head.split("\r\n")
    for name, value in SECURITY_HEADERS:
        assert f"{name}: {value}" in sent


def test_port_in_use_says_so(server):
    with pytest.raises(ListenError, match=rf"port {server.port}: Address already in use\. Choose"):
        HttpServer(EXPORTER, "127.0.0.1", server.port, App(FakeEndpoints(), bytes))


def test_unknown_name_says_so():
    with pytest.raises(ListenError, match=r"Cannot listen on 'no\.such\.host\.invalid' port 0: "):
        HttpServer(EXPORTER, "no.such.host.invalid", 0, App(FakeEndpoints(), bytes))


def test_stop_lets_the_answer_under_way_go_out_and_frees_the_port(endpoints):
    with serving(endpoints) as server, raw(server.port) as idle, raw(server.port) as busy:
        port = server.port
        eventually(lambda: len(server._connections) == 2)
        endpoints.gate.clear()
        busy.sendall(REQUEST)
        assert endpoints.entered.acquire(timeout=300)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert b"" == everything(idle)
        endpoints.gate.set()
        assert TEXT_EXPOSITION == everything(busy).partition(b"\r\n\r\n")[2]
        stopping.join()
        HttpServer(EXPORTER, "127.0.0.1", port, App(endpoints, bytes))._socket.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6")
def test_both_internet_protocols_are_served_on_the_double_colon(endpoints):
    server = HttpServer(EXPORTER, "::", 0, App(endpoints, bytes))
    server.start()
    try:
        ask(server.port, "/metrics/fast")
        assert "127.0.0.1" == endpoints.asked[0][2]
    finally:
        server.stop()
