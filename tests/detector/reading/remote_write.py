"""Fills a real server: many series at once by remote write, encoded with numpy.

Message and field numbers are those of prompb/remote.proto in prometheus/prometheus.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from peerwatch_detector.reading.transport.protobuf import snappy_block, varint

# What ends a series in Prometheus (model/value/value.go).
STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


@dataclass(frozen=True)
class Written:
    """One series to write: labels with the name, times in ms, values."""

    labels: Mapping[str, str]
    times: NDArray[np.int64]
    values: NDArray[np.float64]


def message(series: Iterable[Written]) -> bytes:
    """Return a WriteRequest."""
    parts = []
    for timeseries in series:
        body = b"".join(_label(name, timeseries.labels[name]) for name in sorted(timeseries.labels))
        body += samples(timeseries.times, timeseries.values)
        parts += [b"\x0a", varint(len(body)), body]
    return b"".join(parts)


def _label(name: str, value: str) -> bytes:
    raw_name, raw_value = name.encode(), value.encode()
    pair = b"\x0a" + varint(len(raw_name)) + raw_name + b"\x12" + varint(len(raw_value)) + raw_value
    return b"\x0a" + varint(len(pair)) + pair


def samples(times: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """Return the samples of a series; times of this century take six bytes."""
    table = np.empty((len(times), 18), np.uint8)
    table[:, 0], table[:, 1], table[:, 2], table[:, 11] = 0x12, 16, 0x09, 0x10
    table[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    for k in range(6):
        table[:, 12 + k] = (times >> 7 * k & 0x7F) | (0x80 if k < 5 else 0)
    return table.tobytes()


def write(url: str, series: Iterable[Written], batch: int = 200) -> None:
    """Send series to a server's receiver, some at a time."""
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=120)
    waiting: list[Written] = []

    def send() -> None:
        content = snappy_block(message(waiting))
        connection.request("POST", "/api/v1/write", content, _HEADERS)
        response = connection.getresponse()
        text = response.read()
        assert response.status in {200, 204}, (response.status, text)
        waiting.clear()

    try:
        for timeseries in series:
            waiting.append(timeseries)
            if len(waiting) == batch:
                send()
        if waiting:
            send()
    finally:
        connection.close()
