"""Ethernet interfaces and bonds: carriers, errors, and slaves that are down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.host.sysfs import Sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_ROOT = "class/net"

SPECS = (
    MetricSpec(
        "ethernet_carrier_losses_total",
        "counter",
        "1",
        ("interface",),
        "Times the interface lost its link.",
        "/sys/class/net/*/carrier_down_count",
    ),
    MetricSpec(
        "ethernet_errors_total",
        "counter",
        "1",
        ("interface", "kind"),
        "Frames lost at the link: crc (checksum wrong), frame (not a whole number of bytes), "
        "length (too long or short), fifo and missed (the adapter had no room), aborted, carrier "
        "(link lost while sending), collision (half duplex).",
        "/sys/class/net/*/statistics/{rx,tx}_*_errors, collisions",
    ),
    MetricSpec(
        "bond_slave_up",
        "gauge",
        "1",
        ("bond", "interface"),
        "1 if the bond uses the slave's link or could; 0 if its link is down.",
        "/sys/class/net/*/bonding_slave/mii_status",
        hardware="bond",
    ),
    MetricSpec(
        "bond_slave_link_failures_total",
        "counter",
        "1",
        ("bond", "interface"),
        "Times the bond saw the slave's link fail.",
        "/sys/class/net/*/bonding_slave/link_failure_count",
        hardware="bond",
    ),
)

_ERRORS = {
    "crc": "rx_crc_errors",
    "frame": "rx_frame_errors",
    "length": "rx_length_errors",
    "fifo": "rx_fifo_errors",
    "missed": "rx_missed_errors",
    "aborted": "tx_aborted_errors",
    "carrier": "tx_carrier_errors",
    "collision": "collisions",
}
# ARPHRD_ETHER of <linux/if_arp.h>.
_ETHERNET = 1
# Those of containers have no device and are not counted; chosen far above the ports of any node.
_MAX_INTERFACES = 64


@register(
    "ethernet",
    "errors and link losses of Ethernet interfaces, slaves of bonds",
    interval_seconds=10,
    topic="Host",
    metrics=SPECS,
)
class EthernetCollector:
    """Publishes physical Ethernet interfaces, and the slaves of every bond.

    From /sys, not from /proc/net/bonding: the same values, and those of the node's own network
    also in a container that has mounted the node's /sys and lives in a network of its own.
    """

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        self._sysfs = Sysfs(sources.paths.sysfs, monotonic=sources.monotonic)
        self._whole_machine = config.scope.kind == "host"

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``ethernet_*`` and ``bond_*``.

        Raises
        ------
        NoData
            If the machine has no Ethernet interface of its own.
        PartialData
            If it has more than 64, or some values cannot be read.
        """
        if not self._whole_machine:
            raise NoData("Interfaces belong to the whole machine, not to scope 'processes'.")
        sysfs = self._sysfs
        names = [
            name
            for name in sysfs.names(_ROOT)
            if sysfs.exists(f"{_ROOT}/{name}/device")
            and sysfs.integer(f"{_ROOT}/{name}/type") == _ETHERNET
        ]
        if not names:
            raise NoData(f"There is no Ethernet interface in {str(sysfs.root / _ROOT)!r}.")
        losses, errors, up, failures = (family(spec.name) for spec in SPECS)
        for name in names[:_MAX_INTERFACES]:
            path = f"{_ROOT}/{name}"
            lost = sysfs.integer(f"{path}/carrier_down_count")
            if lost is not None:
                losses.add_metric([name], lost)
            for kind, file in _ERRORS.items():
                count = sysfs.integer(f"{path}/statistics/{file}")
                if count is not None:
                    errors.add_metric([name, kind], count)
            bond = sysfs.link_name(f"{path}/master")
            status = sysfs.text(f"{path}/bonding_slave/mii_status") if bond else None
            if bond is None or status is None:
                continue
            # "going down" and "going back" are a link on its way, as the bond's own delays have it.
            up.add_metric([bond, name], status in {"up", "going down"})
            failed = sysfs.integer(f"{path}/bonding_slave/link_failure_count")
            if failed is not None:
                failures.add_metric([bond, name], failed)
        yield from (losses, errors, up, failures)
        if len(names) > _MAX_INTERFACES:
            raise PartialData(f"Only the first {_MAX_INTERFACES} interfaces are published.")
        sysfs.end()
