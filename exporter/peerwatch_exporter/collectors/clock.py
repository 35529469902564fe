"""The node's clock: what it shows, and whether a time service keeps it right."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

SPECS = (
    MetricSpec(
        "host_clock_synchronized",
        "gauge",
        "1",
        (),
        "1 while a time service (chrony, ntpd, systemd-timesyncd) keeps the kernel's clock right; "
        "0 if none has for so long that it may be 16 s wrong.",
        "adjtimex status STA_UNSYNC",
    ),
    MetricSpec(
        "host_clock_offset_seconds",
        "gauge",
        "seconds",
        (),
        "What the kernel still has to correct, positive if the clock is slow; 0 under chrony, "
        "which steers by the frequency.",
        "adjtimex offset",
    ),
    MetricSpec(
        "host_clock_error_max_seconds",
        "gauge",
        "seconds",
        (),
        "How wrong the clock may be at most, as the time service said; grows while it says "
        "nothing.",
        "adjtimex maxerror",
    ),
)

# seccomp forbids it (EPERM), or the sandbox has no such call (ENOSYS: gVisor).
_NOT_ALLOWED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})


@register(
    "clock",
    "whether the node's clock is kept right, and how wrong it may be",
    interval_seconds=10,
    topic="Host",
    metrics=SPECS,
)
class ClockCollector:
    """Publishes the state of the kernel's clock."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._ask = sources.queries.clock
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_clock_*``.

        Raises
        ------
        NoData
            If the node has no clock of its own, or the sandbox does not let it be asked.
        """
        if not self._whole_machine or self._ask is None:
            raise NoData("The clock belongs to the machine, and this node is not all of it.")
        try:
            state = self._ask()
        except OSError as error:
            if error.errno in _NOT_ALLOWED:
                raise NoData(f"The clock cannot be asked here: {error}.") from error
            raise
        values = (state.is_synchronized, state.offset_seconds, state.max_error_seconds)
        for spec, value in zip(SPECS, values, strict=True):
            result = family(spec.name)
            result.add_metric([], value)
            yield result
