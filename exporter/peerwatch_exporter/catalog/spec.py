"""What the catalogue says about one metric, and the way from there to a metric family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric, declared once; exporter, detector, docs, rules and dashboards read it.

    Parameters
    ----------
    name
        Full name as scraped; counters end in ``_total``.
    kind
        ``counter`` or ``gauge``. Facts (value always 1) are gauges ending in ``_info``.
    unit
        Base unit in words: ``seconds``, ``bytes``, ``ratio``, ``celsius``, ``1`` for none.
    labels
        Label names in the order collectors pass their values.
    help
        What the value means for a person, and the raw counter's own name where it has one.
    source
        Where the raw value comes from: file, NVML function, or the detector's stage.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    labels: tuple[str, ...]
    help: str
    source: str

    def family(self) -> Family:
        """Return an empty metric family; collectors fill it with ``add_metric``."""
        if self.kind == "counter":
            # prometheus_client strips the suffix and adds it back when it renders.
            return CounterMetricFamily(
                self.name.removesuffix("_total"), self.help, labels=self.labels
            )
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)
