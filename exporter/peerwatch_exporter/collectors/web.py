"""The exporter's own web server: refused connections and logins, a broken configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "exporter_web_config_reload_failed",
        "gauge",
        "1",
        (),
        "1 while the web configuration file, its certificate or its key as they stand cannot be "
        "used and what was read before stays in force; the log says why.",
        "web server",
    ),
    MetricSpec(
        "exporter_web_rejected_connections_total",
        "counter",
        "1",
        (),
        "Connections turned away because web.max_connections were in use.",
        "web server",
    ),
    MetricSpec(
        "exporter_web_failed_logins_total",
        "counter",
        "1",
        (),
        "Requests answered 401: no user, an unknown one, or a wrong password.",
        "web server",
    ),
    MetricSpec(
        "exporter_web_shortened_labels_total",
        "counter",
        "1",
        (),
        "Label values of more than 1,024 bytes that were cut, so that the exposition can be "
        "scraped; the log names metric and label. A series that comes back counts again.",
        "web server",
        not_drawn="it rises only where something writes absurd names; the log says where",
    ),
)


@register(
    "web",
    "connections and logins that the exporter itself refused",
    interval_seconds=10,
    topic="The exporter itself",
    metrics=SPECS,
)
class WebCollector:
    """Publishes what the server counts."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        del config
        self._facts = sources.web

    def collect(self) -> Iterable[Family]:
        """Return what was counted, which are there from the start."""
        values = {
            "exporter_web_config_reload_failed": int(self._facts.reload_failed),
            "exporter_web_rejected_connections_total": self._facts.rejected_connections,
            "exporter_web_failed_logins_total": self._facts.failed_logins,
            "exporter_web_shortened_labels_total": self._facts.shortened_labels,
        }
        for name, value in values.items():
            item = family(name)
            item.add_metric((), value)
            yield item
