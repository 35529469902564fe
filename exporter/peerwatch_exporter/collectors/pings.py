"""Who reaches whom: what pings between the exporters of a cluster found, by peer and size."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.sources.pings.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources

_TARGET = ("peer", "protocol", "size")
_PINGS = "pings of the exporter"
_FOR_DIAGNOSIS = "the detector's diagnosis reads it"
_SIZES = (
    "peer: its address; protocol: udp or tcp; size: small (64 bytes), large (pings.large_bytes) or "
    "full (as large as the interface allows, never divided)."
)

SPECS: tuple[MetricSpec, ...] = needing(
    "pings",
    MetricSpec(
        "ping_sent_total",
        "counter",
        "1",
        _TARGET,
        f"Pings that were answered or lost, from the peer's first answer on; {_SIZES}",
        _PINGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "ping_lost_total",
        "counter",
        "1",
        (*_TARGET, "direction"),
        "Pings without an answer in pings.timeout_seconds, by where they were lost: to_peer, "
        "from_peer (answers, which are small), or unknown; of TCP also connections for which the "
        "kernel had to ask again.",
        _PINGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "ping_round_trip_seconds_total",
        "counter",
        "seconds",
        _TARGET,
        "Time until the answers arrived, without what the peer's exporter took; divided by the "
        "pings that were not lost, the mean.",
        _PINGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "ping_recent_round_trip_seconds",
        "gauge",
        "seconds",
        (*_TARGET, "statistic"),
        "Of the last 200 answers, statistic: min, the shortest round trip, or p99, which 99 % of "
        "them did not exceed.",
        _PINGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "ping_peers",
        "gauge",
        "1",
        ("state",),
        "Other nodes: known, in the list; chosen, which are pinged; answering, chosen ones that "
        "ever answered.",
        _PINGS,
        not_drawn="for queries: whether pings are set up",
    ),
    MetricSpec(
        "ping_address_info",
        "gauge",
        "1",
        ("address",),
        "Own addresses at which pings of others arrived, by which their label peer is known. Value "
        "is always 1.",
        _PINGS,
        not_drawn=_FOR_DIAGNOSIS,
    ),
    MetricSpec(
        "ping_answered_total",
        "counter",
        "1",
        (),
        "Pings of others by UDP that were answered.",
        _PINGS,
        not_drawn="for queries: what answering costs",
    ),
    MetricSpec(
        "ping_refused_total",
        "counter",
        "1",
        ("reason",),
        "Packets that were not answered: signature (another secret, or no ping), repeated, or "
        "not_sent, where the system refused to send the answer.",
        _PINGS,
        not_drawn="for queries: nodes with another secret",
    ),
)


class _PeersMissing(PartialData):
    def __init__(self, error_class: str, text: str) -> None:
        super().__init__(text)
        self.error_class = error_class


@register(
    "pings",
    "who reaches whom: loss and round trips of pings between the exporters",
    topic="Pings between nodes",
    metrics=SPECS,
    interval_seconds=10.0,
    is_configured=lambda config: config.pings.enabled,
)
class PingsCollector:
    """Publishes what a thread that pings has counted."""

    def __init__(self, config: ExporterConfig, sources: Sources) -> None:
        del sources
        self._is_enabled = config.pings.enabled
        self._mesh = Mesh(config.pings)
        # Also when the collector is switched off while the exporter runs.
        self._finalizer = weakref.finalize(self, self._mesh.leave)

    def collect(self) -> Iterator[Family]:
        """Yield the families of ``ping_*``.

        Raises
        ------
        NoData
            If pings are off.
        PartialData
            At the end, if secret or peers cannot be read, or the port is in use.
        """
        if not self._is_enabled:
            raise NoData("pings.enabled is false.")
        self._mesh.start()
        yield from _families(self._mesh)
        for problem in (self._mesh.problem, self._mesh.peers.problem):
            if problem is not None:
                raise _PeersMissing(
                    getattr(problem, "error_class", "other"), str(problem)
                ) from problem

    def close(self) -> None:
        """End the thread."""
        self._finalizer.detach()
        self._mesh.close()


def _families(mesh: Mesh) -> Iterator[Family]:
    families = {spec.name: family(spec.name) for spec in SPECS}
    for target, counts in mesh.totals.read().items():
        families["ping_sent_total"].add_metric(target, counts.sent)
        for direction, number in counts.lost.items():
            families["ping_lost_total"].add_metric((*target, direction), number)
        families["ping_round_trip_seconds_total"].add_metric(target, counts.seconds)
        if counts.newest:
            statistics = families["ping_recent_round_trip_seconds"]
            statistics.add_metric((*target, "min"), counts.shortest)
            statistics.add_metric((*target, "p99"), counts.p99)
    peers = families["ping_peers"]
    peers.add_metric(("known",), mesh.peers.known)
    peers.add_metric(("chosen",), len(mesh.peers.partners))
    peers.add_metric(("answering",), mesh.answering)
    for address in mesh.responder.addresses:
        families["ping_address_info"].add_metric((address,), 1)
    families["ping_answered_total"].add_metric((), mesh.responder.answered)
    for reason, number in mesh.responder.refused.items():
        families["ping_refused_total"].add_metric((reason,), number)
    yield from (each for each in families.values() if each.rows)
