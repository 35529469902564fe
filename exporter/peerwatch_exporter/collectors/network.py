"""Network interfaces of the namespace the exporter runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import PartialData, raise_partial
from peerwatch_exporter.sources.host.procfs import InterfaceStat, Procfs
from peerwatch_exporter.sources.host.rarely import Rarely

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources


# What is no bytes is for queries over minutes: three values for each scrape of 15 s.
_SLOW_SECONDS = 5


def _network(direction: str, what: str, column: str) -> MetricSpec:
    return MetricSpec(
        f"host_network_{direction}_{what}_total",
        "counter",
        "bytes" if what == "bytes" else "1",
        ("interface",),
        f"Network interface: {what} in {direction} direction.",
        f"/proc/net/dev, {direction} column {column}",
        every_seconds=0 if what == "bytes" else _SLOW_SECONDS,
    )


SPECS = (
    _network("receive", "bytes", "bytes"),
    _network("receive", "packets", "packets"),
    _network("receive", "errors", "errs"),
    _network("receive", "drops", "drop"),
    _network("transmit", "bytes", "bytes"),
    _network("transmit", "packets", "packets"),
    _network("transmit", "errors", "errs"),
    _network("transmit", "drops", "drop"),
)


# Every container adds an interface, 110 pods by the kubelet's default; the machine's own come first
# in the kernel's list.
_MAX_INTERFACES = 256


@register(
    "network", "bytes, packets, errors and drops by network interface", topic="Host", metrics=SPECS
)
class NetworkCollector:
    """Publishes the counters of every interface."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:  # noqa: ARG002
        self._procfs = Procfs(sources.paths.procfs)
        self._slow: Rarely[list[Family]] = Rarely(_SLOW_SECONDS, sources.monotonic, turn=1)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``host_network_*``.

        Raises
        ------
        PartialData
            If there are more than 256 interfaces, or some cannot be read.
        """
        problems: list[Exception] = []
        interfaces = self._procfs.interfaces(_MAX_INTERFACES + 1, problems)
        published = list(interfaces.items())[:_MAX_INTERFACES]
        names = [name for name, _ in published]
        yield from _families("bytes", published)
        yield from self._slow(lambda: [*_slow_families(published)], names)
        if len(interfaces) > _MAX_INTERFACES:
            raise PartialData(f"Only the first {_MAX_INTERFACES} interfaces are published.")
        raise_partial(problems, found=bool(interfaces))


def _slow_families(interfaces: Iterable[tuple[str, InterfaceStat]]) -> Iterator[Family]:
    for what in ("packets", "errors", "drops"):
        yield from _families(what, interfaces)


def _families(what: str, interfaces: Iterable[tuple[str, InterfaceStat]]) -> tuple[Family, Family]:
    receive = family(f"host_network_receive_{what}_total")
    transmit = family(f"host_network_transmit_{what}_total")
    for name, stat in interfaces:
        received, transmitted = getattr(stat, what)
        receive.add_metric([name], received)
        transmit.add_metric([name], transmitted)
    return receive, transmit
