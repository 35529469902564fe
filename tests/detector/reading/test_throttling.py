"""Whole cycles on a real HTTP server that asks to be asked less."""

from __future__ import annotations

import logging
import math
from email.utils import formatdate

import pytest

from detector.fakes import config_for, metric
from detector.reading.fake_server import FakeServer, Response, error, fake_server, send
from detector.reading.test_bad_servers import NODES, NOW, behave, info, is_range
from peerwatch_detector.errors import ThrottledError
from peerwatch_detector.models.store import EMPTY
from peerwatch_detector.reading.reader import PrometheusReader
from peerwatch_detector.reading.transport.throttle import Throttle, seconds_of
from peerwatch_detector.service.detector import Detector

METRICS = ("load", "memory", "power")
LOGGER = "peerwatch_detector"


def detector(server: FakeServer, longest_wait_seconds: float = 3600) -> Detector:
    config = config_for(
        *(metric(name) for name in METRICS),
        prometheus={
            "url": server.url,
            "reading": {"api": "query", "longest_wait_seconds": longest_wait_seconds},
        },
    )
    return Detector(config, PrometheusReader(config.prometheus), EMPTY, lambda: NOW)


def busy(status: int, retry_after: str) -> Response:
    return send(status, b"too many requests, limit exceeded", Retry_After=retry_after)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(busy(429, "1800"), id="429"),
        pytest.param(busy(503, "1800"), id="503"),
        pytest.param(busy(429, formatdate(NOW * 2, usegmt=True)), id="date"),
    ],
)
def test_a_server_that_throttles_is_left_alone_for_all_jobs_and_logged_once(
    response: Response, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    with fake_server() as server:
        behave(server, bad_info=None, bad_ranges=response)
        here = detector(server)
        with here.reader:  # type: ignore[attr-defined]
            here.cycle()
            asked = len(server.asked)
            # Those under way beside each other when the first was throttled, and none of them
            # in parts, since the text speaks of a limit.
            assert sum(map(is_range, server.asked)) <= len(METRICS)
            for _ in range(5):
                here.cycle()
            assert asked == len(server.asked)
            reading = here.snapshot.reading
    assert reading.errors["throttled"] <= len(METRICS)
    assert reading.deferred >= 5
    assert 1790 < reading.wait_seconds <= 3600
    assert not reading.splits
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert 1 == sum("server_throttles" in line for line in lines)
    assert not [line for line in lines if line.startswith("failed") and "discovery" not in line]


def test_a_throttled_reader_goes_on_when_the_server_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    with fake_server() as server:
        behave(server, bad_info=None, bad_ranges=busy(429, "soon"))
        here = detector(server, longest_wait_seconds=0)
        with here.reader:  # type: ignore[attr-defined]
            here.cycle()
            assert {} == here.snapshot.last_success
            behave(server, bad_info=None, bad_ranges=None)
            here.cycle()
            assert {"j": NOW} == here.snapshot.last_success
    lines = [record.getMessage() for record in caplog.records]
    assert 1 == lines.count("server_throttles_no_more")


def test_what_is_refused_in_all_its_parts_is_asked_as_a_whole_for_a_while() -> None:
    with fake_server() as server:
        behave(server, bad_info=info(NODES), bad_ranges=error(422, "too many samples"))
        here = detector(server)
        with here.reader:  # type: ignore[attr-defined]
            here.cycle()
            first = sum(map(is_range, server.asked))
            here.cycle()
            both = sum(map(is_range, server.asked))
    # Beside the metrics, what tells of the job's progress.
    read = len(here.config.read_metrics())
    assert first > read > len(METRICS)
    assert read == both - first


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("1.5", 1.5),
        ("9" * 4000, math.inf),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tue, 14 Nov 2023 22:14:20 -0000", 60),
        ("Tue, 14 Nov 2023 22:12:20 GMT", 0),
        ("-5", 0),
        ("nan", 0),
        ("٣", 0),
        ("", 0),
        ("Tue, 99 Nov 99999999999 22:14:20 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(retry_after: str, expected: float) -> None:
    assert expected == seconds_of(retry_after, "", NOW)


def test_a_date_is_measured_by_the_clock_of_the_server() -> None:
    later = formatdate(NOW + 5030, usegmt=True)
    assert 30 == seconds_of(later, formatdate(NOW + 5000, usegmt=True), NOW)


def test_waits_double_up_to_the_longest_and_requests_of_one_round_count_once() -> None:
    throttle = Throttle(60, lambda: 0.0)
    now, waits = 0.0, []
    for _ in range(8):
        for _ in range(3):
            throttle.throttled(ThrottledError("Busy.", 0), now - 0.5, now)
        waits.append(throttle.left(now))
        now += waits[-1] + 1
        # An answer in between does not end it: the server still throttles every other request.
        throttle.answered(now)
    assert [1, 2, 4, 8, 16, 32, 60, 60] == waits
    throttle.throttled(ThrottledError("Busy.", 1e9), now, now)
    assert 60 == throttle.left(now)
    now += 120
    throttle.answered(now)
    throttle.throttled(ThrottledError("Busy.", 5), now, now)
    assert 5 == throttle.left(now)
