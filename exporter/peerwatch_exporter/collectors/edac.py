"""Memory errors that the memory controllers counted (EDAC)."""

from __future__ import annotations

import re
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
        "host_edac_errors_total",
        "counter",
        "1",
        ("controller", "severity"),
        "Memory errors by memory controller. Severity corrected: many from one controller "
        "announce a failing module. Severity uncorrected: data was lost, replace the module. "
        "Firmware that handles errors by itself reports them in the kernel log instead (class "
        "apei of host_kernel_events_total).",
        "/sys/devices/system/edac/mc/mc*/{ce_count,ue_count}",
        hardware="EDAC driver",
    ),
)

_ROOT = "devices/system/edac/mc"
_CONTROLLER = re.compile(r"mc\d{1,4}", re.ASCII)
# A machine has a few controllers per socket; chosen far above, as a bound for the exposition.
_MAX_CONTROLLERS = 128
_SEVERITIES = {"corrected": "ce_count", "uncorrected": "ue_count"}


@register(
    "edac",
    "memory errors by memory controller (EDAC)",
    interval_seconds=10,
    topic="Host",
    metrics=SPECS,
)
class EdacCollector:
    """Publishes corrected and uncorrected errors of each controller."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic)

    def collect(self) -> Iterator[Family]:
        """Yield ``host_edac_errors_total``.

        Raises
        ------
        NoData
            If no EDAC driver is loaded: a virtual machine, or firmware that keeps the errors to
            itself and reports them in the kernel log (``host_kernel_events_total``, class apei).
        UnreadableValues
            At the end, if some counters could not be read.
        """
        names = [name for name in self._sysfs.names(_ROOT) if _CONTROLLER.fullmatch(name)]
        if not names:
            raise NoData(f"There is no memory controller in {str(self._sysfs.root / _ROOT)!r}.")
        errors = family("host_edac_errors_total")
        for name in names[:_MAX_CONTROLLERS]:
            for severity, file in _SEVERITIES.items():
                count = self._sysfs.integer(f"{_ROOT}/{name}/{file}")
                if count is not None:
                    errors.add_metric([name, severity], count)
        yield errors
        self._sysfs.end()
