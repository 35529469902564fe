"""What rendering an exposition costs: the exporter's renderer against prometheus_client's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from peerwatch_common.metrics.exposition import Renderer
from peerwatch_common.metrics.spec import Family
from peerwatch_exporter.collector import all_metrics

CATALOG = all_metrics()

_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Rendering:
    """CPU seconds per exposition."""

    series: int
    ours: float
    prometheus_client: float

    @property
    def ratio(self) -> float:
        """How many times dearer prometheus_client is."""
        return self.prometheus_client / self.ours


def compare(exposition: bytes) -> Rendering:
    """Return the cost of rendering the families of an OpenMetrics exposition.

    Each has other numbers, as it has in life; what a library keeps from one to the next it
    may keep.
    """
    rounds = [_families(exposition, shift) for shift in range(_ROUNDS)]
    renderer = Renderer()
    registry = _Registry()
    collector = CollectorRegistry(auto_describe=False)
    collector.register(registry)
    theirs = [[_theirs(family) for family in families] for families in rounds]
    return Rendering(
        sum(len(family.rows) for family in rounds[0]),
        _seconds([lambda f=families: renderer.render(f, openmetrics=True) for families in rounds]),
        _seconds([lambda f=families: registry.render(f, collector) for families in theirs]),
    )


class _Registry:
    """Hands prometheus_client families that are made already."""

    def __init__(self) -> None:
        self.families: list[GaugeMetricFamily | CounterMetricFamily] = []

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        return self.families

    def render(
        self,
        families: list[GaugeMetricFamily | CounterMetricFamily],
        collector: CollectorRegistry,
    ) -> bytes:
        self.families = families
        return generate_latest(collector)


def _families(exposition: bytes, shift: int) -> list[Family]:
    families: dict[str, Family] = {}
    for metric in text_string_to_metric_families(exposition.decode()):
        for sample in metric.samples:
            spec = CATALOG[sample.name]
            found = families.setdefault(sample.name, spec.family())
            found.add_metric([sample.labels[name] for name in spec.labels], sample.value + shift)
    return list(families.values())


def _theirs(item: Family) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if item.type == "counter" else GaugeMetricFamily
    made = kind(item.name, item.documentation, labels=item.spec.labels)
    for labels, value in item.rows:
        made.add_metric(labels, value)
    return made


def _seconds(renderings: list[Callable[[], bytes]]) -> float:
    """Return the median CPU time of a rendering."""
    times = []
    for render in renderings:
        start = time.thread_time()
        render()
        times.append(time.thread_time() - start)
    return sorted(times)[len(times) // 2]
