"""Units of systemd that have failed, and the services a GPU node needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_BUS = "org.freedesktop.systemd1.Manager"

SPECS = (
    MetricSpec(
        "host_systemd_failed_units",
        "gauge",
        "1",
        (),
        "Units of systemd in state failed.",
        f"{_BUS}.ListUnitsFiltered",
        hardware="systemd",
    ),
    MetricSpec(
        "host_systemd_unit_failed",
        "gauge",
        "1",
        ("unit",),
        "1 for every unit in state failed, and 0 for the services of host_systemd_unit_active that "
        "are not.",
        f"{_BUS}.ListUnitsFiltered",
        hardware="systemd",
    ),
    MetricSpec(
        "host_systemd_unit_active",
        "gauge",
        "1",
        ("unit",),
        "1 if a service that training depends on runs or is being started, where it is installed: "
        "fabric manager, persistence daemon, DCGM, RDMA stack, time service, containers, "
        "schedulers.",
        f"{_BUS}.ListUnitsByNames",
        hardware="systemd",
    ),
)

# Without the fabric manager no process on an NVSwitch node gets a CUDA context; without the
# persistence daemon the driver is loaded anew for each job and forgets its settings.
_SERVICES = tuple(
    f"{name}.service"
    for name in (
        "nvidia-fabricmanager",
        "nvidia-persistenced",
        "nvidia-imex",
        "nvidia-dcgm",
        "openibd",
        "opensm",
        "chronyd",
        "chrony",
        "ntpd",
        "systemd-timesyncd",
        "containerd",
        "crio",
        "docker",
        "kubelet",
        "munge",
        "slurmd",
    )
)
_RUNNING = frozenset({"active", "activating", "reloading"})
# Chosen: a node on which more have failed has one reason for all of them.
_MAX_FAILED = 32


@register(
    "systemd",
    "failed units, and services that training depends on",
    interval_seconds=60,
    topic="Host",
    metrics=SPECS,
)
class SystemdCollector:
    """Publishes failed units and the state of chosen services."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._ask = sources.queries.units
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_systemd_*``.

        Raises
        ------
        NoData
            If there is no systemd, or its bus is not in the exporter's container.
        PartialData
            If more than 32 units have failed.
        """
        if not self._whole_machine or self._ask is None:
            raise NoData("systemd belongs to the machine, and this node is not all of it.")
        found = self._ask(_SERVICES)
        count, failed, active = (family(spec.name) for spec in SPECS)
        count.add_metric([], len(found.failed))
        names = sorted(unit.name for unit in found.failed)
        for name in names[:_MAX_FAILED]:
            failed.add_metric([name], 1)
        for unit in found.named:
            active.add_metric([unit.name], unit.active_state in _RUNNING)
            if unit.name not in names:
                failed.add_metric([unit.name], 0)
        yield from (count, failed, active)
        if len(names) > _MAX_FAILED:
            raise PartialData(f"Only {_MAX_FAILED} of {len(names)} failed units are named.")
