"""Every metric of both programs, as rules, dashboards and documents may ask for it."""

from __future__ import annotations

from peerwatch_common.metrics.spec import MetricSpec
from peerwatch_detector.service.catalog import CATALOG as DETECTOR
from peerwatch_exporter.collector import all_metrics

ALL_METRICS: dict[str, MetricSpec] = {**all_metrics(), **DETECTOR}
