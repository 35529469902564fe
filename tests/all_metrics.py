"""Every metric of all programs that run, as rules, dashboards and documents may ask for it."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_detector.service.catalog import CATALOG as DETECTOR
from peerwatch_exporter.collector import all_metrics
from peerwatch_reliability.run.metrics import SPECS as RELIABILITY
from peerwatch_responder.retry.metrics import SPECS as RETRY
from peerwatch_responder.run.metrics import SPECS as RESPONDER

ALL_METRICS: dict[str, MetricSpec] = {
    **all_metrics(),
    **DETECTOR,
    **{spec.name: spec for spec in (*RESPONDER, *RETRY, *RELIABILITY)},
}
