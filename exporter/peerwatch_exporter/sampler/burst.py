"""Answers ``/burst``: the raw samples of the last seconds, as JSON, for whoever zooms in.

A query that cannot be answered gets a JSON error that says what is wrong and what to do.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

from peerwatch_exporter.catalog.sampled_counters import COUNTERS
from peerwatch_exporter.sampler.ring import RingError
from peerwatch_exporter.sampler.steps import lengths, steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peerwatch_exporter.sampler.layout import SampledGroup, SampledSeries
    from peerwatch_exporter.sampler.process import SamplerState
    from peerwatch_exporter.sampler.ring import Rows

# 13 series sampled every millisecond for the 15 s of ``history_seconds``.
MAX_POINTS = 200_000
# The sampler's shortest interval; and by default the last steps of most jobs.
_SHORTEST_SECONDS = 0.001
_DEFAULT_SECONDS = 5.0
_PARAMETERS = ("metric", "seconds", "device", "port", "direction", "gpu")
_FILTERS = _PARAMETERS[2:]
# All six parameters with the longest names are some hundred characters.
_LONGEST_QUERY = 2000
_GPU_UNITS = {"gpu_burst_power_watts": "watts", "gpu_burst_utilization_ratio": "ratio"}
_UNITS = {counter.family: counter.unit for counter in COUNTERS.values()} | _GPU_UNITS
_OK, _BAD, _UNKNOWN, _OFF = (
    "200 OK",
    "400 Bad Request",
    "404 Not Found",
    "503 Service Unavailable",
)


class BurstSource(Protocol):
    """What there is to answer from.

    Parameters
    ----------
    state
        The sampler's.
    history_seconds
        How far back samples are kept.
    gpu_samples
        (Unix time, value) in the order of time, by (gpu, uuid, metric).
    now, monotonic
        Unix time, and the monotonic seconds of the same moment.
    """

    state: SamplerState
    history_seconds: float
    gpu_samples: Mapping[tuple[str, str, str], Sequence[tuple[float, float]]]
    now: float
    monotonic: float

    def rows(self, group: SampledGroup, count: int) -> Rows | None:
        """Return the newest rows of a group, or None if there are none to read."""


class BurstError(Exception):
    """A query that is not answered; ``status`` is the HTTP status line."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for; no metric means the list of metrics."""

    metric: str | None
    seconds: float
    filters: Mapping[str, str]

    def wants(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels is asked for."""
        return all(labels.get(name) == value for name, value in self.filters.items())


def answer(text: str, source: BurstSource | None) -> tuple[str, bytes]:
    """Answer a query.

    Parameters
    ----------
    text
        The query string, percent-encoded, without the question mark.
    source
        What there is to answer from; None if the sampler is off.

    Returns
    -------
    tuple
        HTTP status line and JSON text.
    """
    try:
        if source is None:
            raise BurstError(
                _OFF,
                "The sampler is off. Set sampler.interval_milliseconds, for example to 10, "
                "and start the exporter again.",
            )
        query = parse(text, source.history_seconds)
        if query.metric is None:
            return _OK, json.dumps(_overview(source)).encode()
        return _OK, _samples(query, query.metric, source)
    except BurstError as error:
        return error.status, json.dumps({"error": str(error)}).encode()
    except RingError as error:
        return _OFF, json.dumps({"error": f"{error} Try again in some seconds."}).encode()


def parse(text: str, history_seconds: float) -> Query:
    """Return what a query string asks for.

    Raises
    ------
    BurstError
        If it has unknown parameters, one twice, or values out of their limits.
    """
    if len(text) > _LONGEST_QUERY:
        raise BurstError(
            _BAD, f"The query has {len(text)} characters; {_LONGEST_QUERY} are allowed."
        )
    values: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="replace"):
        if name not in _PARAMETERS:
            raise BurstError(
                _BAD, f"There is no parameter {name!r}; there are {', '.join(_PARAMETERS)}."
            )
        if name in values:
            raise BurstError(_BAD, f"The parameter {name!r} stands twice; give it once.")
        values[name] = value
    metric = values.get("metric")
    if metric is not None and metric not in _UNITS:
        raise BurstError(
            _UNKNOWN, f"There is no metric {metric!r}; there are {', '.join(sorted(_UNITS))}."
        )
    filters = {name: values[name] for name in _FILTERS if name in values}
    return Query(metric, _seconds(values.get("seconds"), history_seconds), filters)


def _seconds(text: str | None, history_seconds: float) -> float:
    if text is None:
        return min(_DEFAULT_SECONDS, history_seconds)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _SHORTEST_SECONDS <= seconds <= history_seconds:
        raise BurstError(
            _BAD,
            f"seconds is {text!r}; give a number from {_SHORTEST_SECONDS:g} to "
            f"{history_seconds:g} (sampler.history_seconds).",
        )
    return seconds


def _overview(source: BurstSource) -> dict[str, Any]:
    """Return which metrics there are, of what, how fine and how far back."""
    metrics: dict[str, dict[str, Any]] = {}
    for group, interval in _groups(source):
        rows = source.rows(group, group.capacity)
        times = rows.times if rows is not None else ()
        available = source.monotonic - times[0] / 1e9 if times else 0.0
        for series in group.series:
            _note(
                metrics,
                series.counter.family,
                series.labels,
                interval,
                min(available, source.history_seconds),
            )
    for (gpu, uuid, metric), samples in source.gpu_samples.items():
        available = min(source.now - samples[0][0], source.history_seconds) if samples else 0.0
        _note(metrics, metric, {"gpu": gpu, "uuid": uuid}, _gpu_interval(samples), available)
    return {"metrics": list(metrics.values()), "history_seconds": source.history_seconds}


def _note(
    metrics: dict[str, dict[str, Any]],
    metric: str,
    labels: Mapping[str, str],
    interval: float,
    available: float,
) -> None:
    entry = metrics.setdefault(
        metric, {"metric": metric, "unit": _UNITS.get(metric, ""), "series": []}
    )
    entry["series"].append(
        {
            **labels,
            "interval_seconds": round(interval, 6),
            "available_seconds": round(max(0.0, available), 3),
        }
    )


def _samples(query: Query, metric: str, source: BurstSource) -> bytes:
    """Return the samples of a metric as JSON, made series by series to need little memory."""
    if metric in _GPU_UNITS:
        found = list(_gpu_series(query, metric, source))
    else:
        found = list(_port_series(query, metric, source))
    intervals = [interval for interval, _ in found]
    head = {
        "metric": metric,
        "unit": _UNITS[metric],
        "interval_seconds": round(max(intervals, default=0.0), 6),
    }
    return b'%s,"samples":[%s]}' % (
        json.dumps(head).removesuffix("}").encode(),
        b",".join(text for _, text in found),
    )


def _port_series(query: Query, metric: str, source: BurstSource) -> Iterator[tuple[float, bytes]]:
    wanted = []
    points = 0
    for group, interval in _groups(source):
        numbers = [
            number
            for number, series in enumerate(group.series)
            if series.counter.family == metric and query.wants(series.labels)
        ]
        count = min(group.capacity, math.ceil(query.seconds / group.interval_seconds) + 2)
        if numbers:
            wanted.append((group, interval, count, numbers))
            points += count * len(numbers)
    if points > MAX_POINTS:
        raise BurstError(
            _BAD,
            f"{query.seconds:g} s of {metric} are up to {points} samples, more than {MAX_POINTS}: "
            "ask for fewer seconds, or name a device and a port.",
        )
    offset = source.now - source.monotonic
    since = int((source.monotonic - query.seconds) * 1e9)
    for group, interval, count, numbers in wanted:
        rows = source.rows(group, count)
        if rows is None:
            continue
        for number in numbers:
            text = _port_samples(rows, group.series[number], rows.columns[number], since, offset)
            yield interval, text


def _port_samples(
    rows: Rows, series: SampledSeries, values: Sequence[int], since: int, offset: float
) -> bytes:
    factor = series.counter.factor
    result = steps(
        rows.times, lengths(rows.times), values, factor=factor, line_rate=series.line_rate
    )
    raw = dict(zip(rows.times, values, strict=True))
    kept = [index for index, time in enumerate(result.times) if time > since]
    return _entry(
        series.labels,
        [round(offset + result.times[index] / 1e9, 6) for index in kept],
        [round(result.rates[index], 3) for index in kept],
        [raw[result.times[index]] * factor for index in kept],
    )


def _gpu_series(query: Query, metric: str, source: BurstSource) -> Iterator[tuple[float, bytes]]:
    for (gpu, uuid, name), samples in source.gpu_samples.items():
        labels = {"gpu": gpu, "uuid": uuid}
        if name != metric or not query.wants(labels):
            continue
        recent = [(time, value) for time, value in samples if time > source.now - query.seconds]
        values = [value for _, value in recent]
        times = [round(time, 6) for time, _ in recent]
        yield _gpu_interval(samples), _entry(labels, times, values, values)


def _entry(
    labels: Mapping[str, str],
    times: Sequence[float],
    values: Sequence[float],
    raw: Sequence[float],
) -> bytes:
    return json.dumps({**labels, "times": times, "values": values, "raw": raw}).encode()


def _groups(source: BurstSource) -> Iterator[tuple[SampledGroup, float]]:
    """Yield each group with the time between its samples as it was in the last second."""
    groups = source.state.layout.groups
    second = source.state.second
    achieved = second["intervals"] if second is not None else [0.0] * len(groups)
    for group, interval in zip(groups, achieved, strict=True):
        yield group, interval or group.interval_seconds


def _gpu_interval(samples: Sequence[tuple[float, float]]) -> float:
    if len(samples) < 2:
        return 0.0
    return (samples[-1][0] - samples[0][0]) / (len(samples) - 1)
