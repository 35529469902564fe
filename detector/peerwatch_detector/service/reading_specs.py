"""What the detector publishes about its reading from Prometheus."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

READING_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "peerwatch_read_samples_total",
        "counter",
        "1",
        (),
        "Samples read from Prometheus.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_read_errors_total",
        "counter",
        "1",
        ("reason",),
        "Failed reads by reason: unreachable, timeout, http_4xx, http_5xx, truncated, malformed, "
        "refused (by the server), too_large (for the limits of prometheus.reading), throttled "
        "(429, or 503 with Retry-After).",
        "reading",
    ),
    MetricSpec(
        "peerwatch_read_bytes_total",
        "counter",
        "bytes",
        (),
        "Size of the responses that samples were read from.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_read_seconds_total",
        "counter",
        "seconds",
        ("api",),
        "Duration of responses by API (remote_read, export, query, query_range), including the "
        "wait for the server; connections add up.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_read_requests_total",
        "counter",
        "1",
        (),
        "Ranges requested from Prometheus; a metric of a job is one request, or several.",
        "reading",
        not_drawn="the time that responses take is drawn",
    ),
    MetricSpec(
        "peerwatch_read_splits_total",
        "counter",
        "1",
        (),
        "Requests that were halved because the server refused or did not finish them.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_read_deferred_total",
        "counter",
        "1",
        (),
        "Requests that were not sent because the server throttles: it answered 429, or 503 with "
        "Retry-After.",
        "reading",
        not_drawn="the remaining wait is drawn",
    ),
    MetricSpec(
        "peerwatch_read_partial_responses_total",
        "counter",
        "1",
        (),
        "Responses that the server called partial, as when a store is down.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_reader_up",
        "gauge",
        "1",
        (),
        "1 if the last read from Prometheus succeeded, 0 while it cannot be read.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_reader_wait_seconds",
        "gauge",
        "seconds",
        (),
        "Remaining backoff from a Prometheus that keeps failing.",
        "reading",
    ),
    MetricSpec(
        "peerwatch_reader_info",
        "gauge",
        "1",
        ("api",),
        "The API that long ranges are read by; absent until the server has been probed.",
        "reading",
        not_drawn="the API is in the time that responses take",
    ),
)
