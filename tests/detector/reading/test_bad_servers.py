"""Whole cycles of the detector on a server that misbehaves in every way a server can."""

from __future__ import annotations

import json
import logging
import socket
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest

from detector.fakes import config_for, metric
from detector.reading.fake_server import (
    FakeServer,
    Handler,
    ReceivedRequest,
    Response,
    fake_server,
    matrix,
    send,
)
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.service.detector import Detector

NODES = ("a", "b", "c", "d")
NOW = 1_700_000_000.0
# Small enough for a test that fills them.
LIMITS = {"max_response_bytes": 1 << 20, "max_series": 500, "max_splits": 0}


def info(names: tuple[str, ...] = NODES) -> Response:
    """Answer as if one job ran on the nodes."""
    result = [{"metric": {"job_id": "j", "node": node}, "value": [NOW, "1"]} for node in names]
    data = {"resultType": "vector", "result": result}
    return send(200, json.dumps({"status": "success", "data": data}).encode())


def samples() -> Response:
    values = [[NOW - 100 + second, "0.5"] for second in range(99)]
    return matrix([{"metric": {"node": node}, "values": values} for node in NODES])


def stall(server: FakeServer) -> Response:
    def respond(handler: Handler, _: ReceivedRequest) -> None:
        server.release.wait(60)

    return respond


def hang_up(_: FakeServer) -> Response:
    def respond(handler: Handler, _: ReceivedRequest) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    return respond


def broken_off(_: FakeServer) -> Response:
    def respond(handler: Handler, _: ReceivedRequest) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "5000")
        handler.end_headers()
        handler.wfile.write(b'{"status":"success","data":{"resultType":')
        handler.close_connection = True

    return respond


def endless(piece: bytes) -> Any:
    """Begin as the query API does and never end."""

    def make(_: FakeServer) -> Response:
        def respond(handler: Handler, asked: ReceivedRequest) -> None:
            kind = "matrix" if "[" in asked.form.get("query", "") else "vector"
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Connection", "close")
            handler.end_headers()
            head = f'{{"status":"success","data":{{"resultType":"{kind}","result":['
            handler.wfile.write(head.encode())
            for number in count():
                handler.wfile.write(piece.replace(b"#", b"%d" % number) * 100)

        return respond

    return make


def constant(response: Response) -> Any:
    return lambda _: response


SERIES = b'{"metric":{"node":"n#"},"values":[[1699999990,"1"]]},'
BAD = {
    "garbage": (constant(send(200, b"\x00\xffgarbage")), "malformed"),
    "html": (constant(send(200, b"<html>Log in</html>", "text/html")), "malformed"),
    "other_json": (constant(send(200, b'{"status":"success","data":[]}')), "malformed"),
    "nested": (constant(send(200, b'{"a":' + b"[" * 100_000)), "malformed"),
    "nested_error": (constant(send(500, b"[" * 60_000)), "http_5xx"),
    "nothing": (stall, "timeout"),
    "half": (broken_off, "truncated"),
    "hang_up": (hang_up, "unreachable"),
    "endless_blanks": (endless(b" " * 1000), "too_large"),
    "endless_series": (endless(SERIES), "too_large"),
    "error": (constant(send(500, b"out of memory", "text/plain")), "http_5xx"),
}
# How long a server that does not answer is waited for.
LIMIT_OF = {"timeout": 0.3}
each_bad = pytest.mark.parametrize(
    ("make", "reason"), [pytest.param(*BAD[name], id=name) for name in BAD]
)


def is_range(asked: ReceivedRequest) -> bool:
    return "ms]" in asked.form.get("query", "")


def behave(server: FakeServer, *, bad_info: Response | None, bad_ranges: Response | None) -> None:
    """Let the server answer well but for what is given."""

    def respond(handler: Handler, asked: ReceivedRequest) -> None:
        good = samples() if is_range(asked) else info()
        bad = bad_ranges if is_range(asked) else bad_info
        (bad or good)(handler, asked)

    server.responses["query"] = respond


@contextmanager
def detector(
    server: FakeServer, timeout_seconds: float = 30, *, progress: bool = True, **limits: object
) -> Iterator[Detector]:
    config = config_for(
        metric(),
        peerwatch={"progress": progress},
        history_seconds=300,
        prometheus={
            "url": server.url,
            "timeout_seconds": timeout_seconds,
            "reading": {**LIMITS, "api": "query", **limits},
        },
    )
    with PrometheusReader(config.prometheus) as reader:
        yield Detector(config, reader, EMPTY, lambda: NOW)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


@each_bad
def test_a_server_that_answers_nothing_right_is_counted_and_left_alone(
    server: FakeServer, make: Any, reason: str
) -> None:
    bad = make(server)
    behave(server, bad_info=bad, bad_ranges=bad)
    with detector(server, LIMIT_OF.get(reason, 30), longest_wait_seconds=3600) as here:
        asked = -1
        # The waits double: soon a cycle falls into one.
        while asked != len(server.asked):
            asked = len(server.asked)
            here.cycle()
            assert reason in here.snapshot.reading.errors
            assert not here.snapshot.reading.up
        assert here.snapshot.reading.wait_seconds > 0
        assert here.snapshot.discovered is None


@each_bad
def test_ranges_that_go_wrong_cost_their_job_its_cycle(
    server: FakeServer, make: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "peerwatch_detector")
    behave(server, bad_info=None, bad_ranges=make(server))
    with detector(server, LIMIT_OF.get(reason, 30), longest_wait_seconds=0) as here:
        here.cycle()
        assert {} == here.snapshot.last_success
        assert here.snapshot.reading.errors[reason] >= 1  # type: ignore[index]
        assert here.snapshot.discovered == NOW
        behave(server, bad_info=None, bad_ranges=None)
        here.cycle()
        assert {"j": NOW} == here.snapshot.last_success
        assert here.snapshot.reading.up
    messages = [record.getMessage() for record in caplog.records]
    assert 1 == sum(f"failed what=j reason={reason}" in message for message in messages)
    assert "recovered what=j" in messages


@pytest.mark.parametrize("piece", [SERIES, b" " * 1000], ids=["series", "blanks"])
def test_endless_answers_take_no_more_memory_than_the_limits(
    server: FakeServer, piece: bytes
) -> None:
    behave(server, bad_info=None, bad_ranges=endless(piece)(server))
    # The limits are those of one response: one metric, without counters read at the same time.
    with detector(server, progress=False, max_response_bytes=1 << 28, max_series=1000) as here:
        tracemalloc.start()
        here.cycle()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert {} == here.snapshot.last_success
    # 1000 series of 360 steps, or a part of a response without an end, and the buffers.
    assert peak < 150e6


def drip(piece: bytes) -> Response:
    """Send a head bit by bit, without an end."""

    def respond(handler: Handler, _: ReceivedRequest) -> None:
        with suppress(OSError):
            while True:
                handler.wfile.write(piece)
                time.sleep(0.01)

    return respond


# Time for a good response on a busy machine, and not for a test to wait.
TIGHT = {"timeout_seconds": 2, "reading": LIMITS}


@pytest.mark.parametrize(
    "piece", [b"HTTP/1.1 100 Continue\r\n\r\n", b"x"], ids=["continue", "slow_head"]
)
def test_ranges_whose_heads_have_no_end_are_errors_and_the_reader_is_not_up(piece: bytes) -> None:
    with fake_server() as server:
        ranges = samples()
        server.respond = lambda handler, asked: (ranges if is_range(asked) else info())(
            handler, asked
        )
        config = config_for(metric("load"), prometheus={"url": server.url, **TIGHT})
        with PrometheusReader(config.prometheus) as reader:
            detector = Detector(config, reader, EMPTY, lambda: NOW)
            detector.cycle()
            assert detector.snapshot.reading.up
            ranges = drip(piece)
            detector.cycle()
            assert detector.snapshot.reading.errors["timeout"] >= 1
            assert not detector.snapshot.reading.up
            ranges = samples()
            detector.cycle()
            assert detector.snapshot.reading.up
