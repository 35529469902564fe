"""The metrics of results, the same in a textfile and on the exporter's endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_common.check_results.record import Record

_LABELS = ("check", "scope", "device", "severity")
# Only values of the same hardware are compared: the versions of a record that say what it was, by
# label.
_HARDWARE = {"gpu_model": "gpu", "cpu_model": "cpu"}
_SOURCE = "the newest record of peerwatch-check"
_NOT_DRAWN = "for queries and alerts of your own; the check's message says more"

SPECS = (
    MetricSpec(
        "peerwatch_check_status",
        "gauge",
        "1",
        _LABELS,
        "How a check of this node or of one of its devices ended: 0 pass, 1 warn, 2 fail, 3 error "
        "(the check did not work), 4 skipped (it did not run).",
        _SOURCE,
    ),
    MetricSpec(
        "peerwatch_check_value_ratio",
        "gauge",
        "ratio",
        _LABELS,
        "What a check measured, as a ratio to what it was compared with.",
        _SOURCE,
        not_drawn=_NOT_DRAWN,
    ),
    MetricSpec(
        "peerwatch_check_value",
        "gauge",
        "1",
        (*_LABELS, "unit", *_HARDWARE),
        "What a check measured, in the unit that its label says, with the models of the node's "
        "GPUs and CPUs: only values of the same ones are compared.",
        _SOURCE,
    ),
    MetricSpec(
        "peerwatch_check_duration_seconds",
        "gauge",
        "seconds",
        _LABELS,
        "How long the check ran.",
        _SOURCE,
        not_drawn=_NOT_DRAWN,
    ),
    MetricSpec(
        "peerwatch_check_last_run_timestamp_seconds",
        "gauge",
        "seconds",
        _LABELS,
        "When the check began.",
        _SOURCE,
    ),
)


def families(records: Iterable[Record]) -> tuple[Family, ...]:
    """Return the families of records, of which each has a key of its own."""
    status, ratio, value, duration, last_run = (spec.family() for spec in SPECS)
    for record in records:
        labels = (record.check, record.scope, record.device, record.severity)
        status.add_metric(labels, record.status_value)
        if record.value_ratio is not None:
            ratio.add_metric(labels, record.value_ratio)
        if record.value is not None:
            models = [record.versions.get(version, "") for version in _HARDWARE.values()]
            value.add_metric((*labels, record.unit, *models), record.value)
        duration.add_metric(labels, record.duration_seconds)
        last_run.add_metric(labels, record.started)
    return (status, ratio, value, duration, last_run)
