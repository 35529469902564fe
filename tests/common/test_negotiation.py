"""What clients can take: headers as Prometheus, VictoriaMetrics, curl and browsers send them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_common.web.negotiation import (
    DEFAULT_TIMEOUT_SECONDS,
    MAX_TIMEOUT_SECONDS,
    accepts_gzip,
    prefers_openmetrics,
    scrape_timeout,
)

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
    f"q=0.7,{PROMETHEUS_3}"
)
VICTORIA_METRICS = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param(PROMETHEUS_2_42, True, id="Prometheus 2.42"),
        pytest.param(PROMETHEUS_3, True, id="Prometheus 3"),
        pytest.param(PROMETHEUS_3_PROTOBUF, True, id="Prometheus 3 with protobuf"),
        pytest.param("Application/OpenMetrics-Text; Version=1.0.0", True, id="capitals"),
        pytest.param("application/openmetrics-text", True, id="no version"),
        pytest.param(VICTORIA_METRICS, False, id="VictoriaMetrics"),
        pytest.param("*/*", False, id="curl"),
        pytest.param(BROWSER, False, id="browser"),
        pytest.param("", False, id="nothing"),
        pytest.param("application/openmetrics-text;version=2.0.0", False, id="unknown version"),
        pytest.param("application/openmetrics-text;q=0", False, id="refused"),
        pytest.param("application/openmetrics-text;q=0.2,text/plain;q=0.3", False, id="text first"),
        pytest.param("application/openmetrics-text;q=soon", False, id="garbled quality"),
    ],
)
def test_openmetrics_is_for_who_prefers_it(accept, expected):
    assert expected == prefers_openmetrics(accept)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("identity, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0, *", False),
        ("gzip;q=0.000", False),
    ],
)
def test_gzip_is_for_who_accepts_it(header, expected):
    assert expected == accepts_gzip(header)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("10", 9.5), ("1", 0.75), ("0.2", 0.15), ("30.000000", 29.5), ("999999", MAX_TIMEOUT_SECONDS)],
)
def test_timeout_keeps_a_margin(header, seconds):
    assert pytest.approx(seconds) == scrape_timeout(header)


@pytest.mark.parametrize(
    "header", ["", "0", "-1", "inf", "nan", "1e9", "10s", "1_0", "٣", "9" * 40]
)
def test_garbled_timeout_is_as_none(header):
    assert scrape_timeout(header) == DEFAULT_TIMEOUT_SECONDS


@given(st.text())
def test_no_header_raises(header):
    assert prefers_openmetrics(header) in {True, False}
    assert accepts_gzip(header) in {True, False}
    seconds = scrape_timeout(header)
    assert math.isfinite(seconds)
    assert 0 < seconds <= MAX_TIMEOUT_SECONDS
