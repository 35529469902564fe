"""Pressure stall information: time lost for want of CPU, memory or storage."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, raise_partial
from peerwatch_exporter.sources.host.procfs import Procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "host_pressure_seconds_total",
        "counter",
        "seconds",
        ("resource", "kind"),
        "Time in which some or all (full) runnable tasks stood still for want of the resource.",
        "/proc/pressure/{cpu,io,memory} total",
        hardware="Linux 4.20",
    ),
)


@register(
    "pressure",
    "time lost waiting for CPU, memory or storage (PSI)",
    interval_seconds=5,
    topic="Host",
    metrics=SPECS,
)
class PressureCollector:
    """Publishes the machine's stall times where the kernel counts them."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._procfs = Procfs(sources.paths.procfs)
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield ``host_pressure_seconds_total``."""
        if not self._whole_machine:
            raise NoData("Stall times belong to the whole machine, not to scope 'processes'.")
        problems: list[Exception] = []
        stalls = self._procfs.pressure(problems)
        # A kernel built with PSI but started with psi=0 has the files and refuses to read.
        for problem in problems:
            if isinstance(problem, OSError) and problem.errno == errno.EOPNOTSUPP:
                raise NoData("The kernel was started with psi=0.") from problem
        if not stalls:
            raise_partial(problems, found=False)
            raise NoData(f"There is no {self._procfs.root / 'pressure'}.")
        seconds = family("host_pressure_seconds_total")
        for (resource, kind), value in stalls.items():
            seconds.add_metric([resource, kind], value)
        yield seconds
        raise_partial(problems, found=True)
