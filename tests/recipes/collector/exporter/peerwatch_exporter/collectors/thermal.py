"""Temperatures that the machine's firmware reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.host.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "host_thermal_celsius",
        "gauge",
        "celsius",
        ("sensor",),
        "Temperature that a sensor of the machine reports.",
        "/sys/class/thermal/thermal_zone*/temp",
        not_drawn="the GPUs' own temperatures are drawn",
    ),
)

_ROOT = "class/thermal"
_MAX_SENSORS = 64


@register("thermal", "temperatures by sensor", interval_seconds=10, topic="Host", metrics=SPECS)
class ThermalCollector:
    """Publishes the temperature of each sensor."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic)

    def collect(self) -> Iterator[Family]:
        """Yield ``host_thermal_celsius``.

        Raises
        ------
        NoData
            If the machine has no sensor.
        """
        names = [name for name in self._sysfs.names(_ROOT) if name.startswith("thermal_zone")]
        if not names:
            raise NoData("The machine has no thermal sensor.")
        celsius = family("host_thermal_celsius")
        for name in names[:_MAX_SENSORS]:
            millidegrees = self._sysfs.integer(f"{_ROOT}/{name}/temp")
            if millidegrees is not None:
                celsius.add_metric([name], millidegrees / 1000)
        yield celsius
