"""Reads ranges from any server with the Prometheus query API.

The network ends here: whatever goes wrong becomes a ``ReadError`` with a short reason, and the
counters in ``ReadStatistics`` say how often. Answers are asked for without compression, because
gzip costs the server far more time than the bytes cost the network.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import requests

from peerwatch_detector import promql
from peerwatch_detector.config import DetectorConfig, MetricConfig, PrometheusConfig
from peerwatch_detector.errors import ReadError, ReadFailure
from peerwatch_detector.frame import Series

# Prometheus refuses range queries with more points per series (web/api/v1: 11,000).
_MOST_POINTS = 11_000


@dataclass(slots=True)
class ReadStatistics:
    """What reading cost so far; published as metrics."""

    samples: int = 0
    errors: dict[ReadFailure, int] = field(default_factory=dict)
    up: bool = False


class Reader(Protocol):
    """Delivers series; the detector knows no other way to data."""

    statistics: ReadStatistics

    def instant(self, query: str) -> list[Series]:
        """Return the present value of every series of ``query``, one sample each."""

    def raw_range(self, selector: str, start: float, end: float) -> list[Series]:
        """Return the raw samples of a selector between two Unix times, both ends included."""

    def stepped_range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return an expression evaluated every ``step`` seconds between two Unix times."""


def metric_samples(
    reader: Reader,
    metric: MetricConfig,
    job_id: str,
    start: float,
    end: float,
    config: DetectorConfig,
) -> list[Series]:
    """Read one metric of one job, recorded or joined as the configuration says.

    Parameters
    ----------
    reader
        Where it is read.
    metric, job_id
        What.
    start, end
        Unix times of the first and the last step.
    config
        Settings.

    Raises
    ------
    ReadError
        As ``Reader``.
    """
    if config.prometheus.recorded:
        return reader.raw_range(promql.recorded_query(metric, job_id), start, end)
    query = promql.joined_query(metric, job_id, config.rate_window_seconds)
    return reader.stepped_range(query, start, end, float(config.step_seconds))


class PrometheusReader:
    """The portable reader: ``/api/v1/query`` and ``/api/v1/query_range`` over HTTP.

    Parameters
    ----------
    config
        URL, timeout and headers.
    session
        HTTP session; tests inject their own.
    """

    def __init__(self, config: PrometheusConfig, session: requests.Session | None = None) -> None:
        self.config = config
        self.statistics = ReadStatistics()
        self._session = session or requests.Session()
        self._session.headers.update({"Accept-Encoding": "identity", **config.headers})

    def instant(self, query: str) -> list[Series]:
        """Return the present value of every series of ``query``, one sample each.

        Raises
        ------
        ReadError
            If the server cannot be reached or does not answer usefully.
        """
        return self._ask("query", {"query": query}, "vector")

    def raw_range(self, selector: str, start: float, end: float) -> list[Series]:
        """Return the raw samples of a selector between two Unix times, both ends included.

        An instant query of a range selector delivers samples with their own timestamps, where
        ``query_range`` would repeat old ones; it also costs the server least.
        """
        query = f"{selector}[{_duration(end - start)}]"
        return self._ask("query", {"query": query, "time": f"{end:.3f}"}, "matrix")

    def stepped_range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return an expression evaluated every ``step`` seconds between two Unix times.

        Ranges beyond the server's limit of points per series are read in parts and joined.
        """
        parts: list[Series] = []
        left = start
        while left <= end:
            right = min(end, left + (_MOST_POINTS - 1) * step)
            parts += self._ask(
                "query_range",
                {
                    "query": query,
                    "start": f"{left:.3f}",
                    "end": f"{right:.3f}",
                    "step": f"{step:g}",
                },
                "matrix",
            )
            left = right + step
        return _join(parts)

    def _ask(self, endpoint: str, form: dict[str, str], expected: str) -> list[Series]:
        try:
            data = self._post(endpoint, form)
            series = _parse(data, expected)
        except ReadError as error:
            errors = self.statistics.errors
            errors[error.reason] = errors.get(error.reason, 0) + 1
            self.statistics.up = False
            raise
        self.statistics.up = True
        self.statistics.samples += sum(len(one.times) for one in series)
        return series

    def _post(self, endpoint: str, form: dict[str, str]) -> dict[str, Any]:
        url = f"{self.config.url.rstrip('/')}/api/v1/{endpoint}"
        limit = self.config.timeout_seconds
        form = {**form, "timeout": f"{limit:g}s"}
        try:
            response = self._session.post(url, data=form, timeout=limit)
            body = response.content
        except requests.exceptions.Timeout as error:
            raise ReadError(
                "timeout",
                f"{url} did not answer within {limit:g} s; raise "
                "prometheus.timeout_seconds or look at the server's load.",
            ) from error
        except (
            requests.exceptions.ChunkedEncodingError,
            requests.exceptions.ContentDecodingError,
        ) as error:
            raise ReadError("truncated", f"{url} broke off in mid-answer: {error}.") from error
        except requests.exceptions.ConnectionError as error:
            if "Read timed out" in str(error):
                raise ReadError(
                    "timeout", f"{url} stalled for {limit:g} s in mid-answer."
                ) from error
            raise ReadError(
                "unreachable",
                f"{url} cannot be reached: {_cause(error)}; check "
                "prometheus.url and that the server runs.",
            ) from error
        except requests.exceptions.RequestException as error:
            raise ReadError("unreachable", f"{url} cannot be asked: {error}.") from error
        return _decode(url, response.status_code, body)


def _duration(seconds: float) -> str:
    """Return a length as PromQL has it, which knows whole numbers only; at least a millisecond."""
    milliseconds = max(1, round(seconds * 1000))
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    return f"{milliseconds // 1000}s"


def _cause(error: BaseException) -> str:
    """Return the innermost reason of a connection error, without urllib3's wrapping."""
    reason = getattr(error.args[0], "reason", error) if error.args else error
    text = str(reason)
    return text.rsplit(": ", 1)[-1].rstrip(")'\"")


def _decode(url: str, status: int, body: bytes) -> dict[str, Any]:
    """Check an answer's status and JSON and return its ``data``."""
    try:
        answer = json.loads(body)
    except ValueError as error:
        if status >= 400:
            answer = {"error": body[:200].decode(errors="replace").strip() or "no text"}
        elif body[:1] == b"{":
            raise ReadError(
                "truncated", f"{url} broke off in mid-answer after {len(body)} bytes ({error})."
            ) from error
        else:
            raise ReadError(
                "malformed",
                f"{url} answered with something that is not JSON: "
                f"{body[:80]!r}; is prometheus.url the query API?",
            ) from error
    if status >= 400 or not isinstance(answer, dict) or answer.get("status") != "success":
        text = answer.get("error", "no reason given") if isinstance(answer, dict) else answer
        reason: ReadFailure = (
            "http_5xx"
            if status >= 500
            else "refused"
            if status == 422
            else "http_4xx"
            if status >= 400
            else "malformed"
        )
        raise ReadError(reason, f"{url} answered {status}: {text}.")
    data: Any = answer.get("data")
    return data if isinstance(data, dict) else {}


def _parse(data: dict[str, Any], expected: str) -> list[Series]:
    """Turn a vector or matrix into series; values become float64, NaN and infinities included."""
    if data.get("resultType") != expected:
        raise ReadError("malformed", f"Expected a {expected}, got {data.get('resultType')!r}.")
    series = []
    try:
        for item in data["result"]:
            pairs = [item["value"]] if expected == "vector" else item["values"]
            table = np.array([(float(t), float(v)) for t, v in pairs], dtype=np.float64)
            labels = {k: v for k, v in item["metric"].items() if k != "__name__"}
            series.append(Series(labels, table[:, 0].copy(), table[:, 1].copy()))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ReadError("malformed", f"A {expected} of unexpected form: {error!r}.") from error
    return series


def _join(parts: list[Series]) -> list[Series]:
    """Join the pieces of the same series in the order they were read."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for part in parts:
        by_labels.setdefault(tuple(sorted(part.labels.items())), []).append(part)
    return [
        pieces[0]
        if len(pieces) == 1
        else Series(
            pieces[0].labels,
            np.concatenate([p.times for p in pieces]),
            np.concatenate([p.values for p in pieces]),
        )
        for pieces in by_labels.values()
    ]
