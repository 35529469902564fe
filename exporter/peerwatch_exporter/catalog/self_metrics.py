"""What the exporter says about itself."""

from __future__ import annotations

from peerwatch_exporter.catalog.spec import MetricSpec

_COLLECTOR = ("collector",)

SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "exporter_build_info",
        "gauge",
        "1",
        ("version",),
        "Version of the running exporter; present whenever the node can be reached.",
        "peerwatch_exporter.__version__",
    ),
    MetricSpec(
        "exporter_collector_success",
        "gauge",
        "1",
        _COLLECTOR,
        "1 if the collector's last run succeeded (also when the node has no such hardware), "
        "0 if it failed or passed its deadline.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_duration_seconds",
        "gauge",
        "seconds",
        _COLLECTOR,
        "Wall time of the collector's last run; of the run under way while it is stuck.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_last_success_timestamp_seconds",
        "gauge",
        "seconds",
        _COLLECTOR,
        "When the collector last succeeded (Unix time); absent before the first time.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_timeouts_total",
        "counter",
        "1",
        _COLLECTOR,
        "Runs of the collector that passed the deadline and were left out of the page.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_stuck_seconds",
        "gauge",
        "seconds",
        _COLLECTOR,
        "For how long a run past its deadline has not returned; 0 if none is stuck.",
        "runner",
    ),
    MetricSpec(
        "exporter_collector_error_info",
        "gauge",
        "1",
        ("collector", "error"),
        "1 while the collector fails, or cannot read a part of its source; error is a short "
        "class such as permission_denied, os_error or deadline_exceeded.",
        "runner",
    ),
    MetricSpec(
        "exporter_nvml_errors_total",
        "counter",
        "1",
        ("code",),
        "Failed NVML calls by error code; values a GPU does not support are not counted.",
        "NVML return codes",
    ),
    MetricSpec(
        "exporter_series",
        "gauge",
        "1",
        (),
        "Series on this page.",
        "runner",
    ),
)
