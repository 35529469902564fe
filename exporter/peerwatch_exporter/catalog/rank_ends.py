"""Metrics about ranks that are halted or have ended; the ranks collector declares them."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec

_RANK_LABELS = ("job_id", "rank")

RANK_END_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "rank_halted_seconds",
        "gauge",
        "seconds",
        _RANK_LABELS,
        "How long the rank's main process has been stopped, a zombie or gone, or since its program "
        "ended with an exception that nobody caught; absent while it lives.",
        "/proc/<pid>/stat state, seen each second; heartbeat file: time, ended",
        not_drawn="the detector reads it, and says what it means",
    ),
    MetricSpec(
        "rank_stopped_seconds_total",
        "counter",
        "seconds",
        _RANK_LABELS,
        "Time for which the rank's main process was stopped, as far as the exporter saw.",
        "/proc/<pid>/stat state, seen each second",
        not_drawn="the detector reads it, and says what it means",
    ),
    MetricSpec(
        "rank_exit_info",
        "gauge",
        "1",
        ("job_id", "rank", "code", "signal", "error"),
        "How the process of a rank ended that is a zombie or gone: its exit code, the signal "
        "that killed it, the class of the exception that nobody caught, which is known before the "
        "process is gone. What is not known is empty; absent if nothing is.",
        "/proc/<pid>/stat exit_code of a zombie; heartbeat file: error",
        not_drawn="the detector reads it, and says what it means",
    ),
)
