"""Who reaches whom: what pings between the exporters of a cluster found, by peer and size."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.catalog.hardware import needing
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.pings.mesh import Mesh
    from peerwatch_exporter.sources.pings.rdma.mesh import RdmaPings
    from peerwatch_exporter.sources.pings.rdma.servers import RpingServers

_TARGET = ("peer", "protocol", "size")
_PINGS = "pings of the exporter"
_SIZES = (
    "peer: its address; protocol: udp, tcp or rdma; size: small (64 bytes), large "
    "(pings.large_bytes, of RDMA pings.rdma_large_bytes) or full (as large as the interface "
    "allows, never divided)."
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
    ),
    MetricSpec(
        "ping_lost_total",
        "counter",
        "1",
        (*_TARGET, "direction"),
        "Pings without an answer in pings.timeout_seconds, by where they were lost: to_peer, "
        "from_peer (answers, which are small), or unknown; of TCP also connections for which the "
        "kernel had to ask again, of RDMA runs of rping that were not answered in full.",
        _PINGS,
    ),
    MetricSpec(
        "ping_round_trip_seconds_total",
        "counter",
        "seconds",
        _TARGET,
        "Time until the answers arrived, without what the peer's exporter took; divided by the "
        "pings that were not lost, the mean. Of RDMA the mean time of an exchange, which is a "
        "read and a write by RDMA and four messages.",
        _PINGS,
    ),
    MetricSpec(
        "ping_recent_round_trip_seconds",
        "gauge",
        "seconds",
        (*_TARGET, "statistic"),
        "Of the last 200 answers, statistic: min, the shortest round trip, or p99, which 99 % of "
        "them did not exceed.",
        _PINGS,
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
    MetricSpec(
        "ping_rdma_state",
        "gauge",
        "1",
        ("role", "state"),
        "1 for how it stood with the last ping over RDMA, 0 for the other states, by role (client, "
        "or server for a peer): ready, tool_missing (rping), no_device, no_access (to "
        "/dev/infiniband, or its modules are not loaded), no_locked_memory, no_address (the "
        "address that was asked, or the port, cannot be served) or failed.",
        _PINGS,
        not_drawn="for queries: why there are no pings over RDMA",
    ),
    MetricSpec(
        "ping_rdma_failures_total",
        "counter",
        "1",
        ("peer", "reason"),
        "Pings over RDMA that were not answered in full, also before the peer's first answer: "
        "no_session (it did not answer the request for a server: another secret, no pings there, "
        "or lost), busy (asked too often, or by too many), not_serving (no rping there, or its "
        "server refuses), not_rdma (no RDMA device leads to its address), unreachable, timeout, "
        "broken (after the first exchange) or other.",
        _PINGS,
        not_drawn="for queries: why pings over RDMA fail",
    ),
    MetricSpec(
        "ping_rdma_sessions_total",
        "counter",
        "1",
        ("result",),
        "Servers that peers with the secret asked for: served; unused, where no client came; "
        "ended, as one took too long; failed, which ping_rdma_state explains; refused as one peer "
        "asked too_often, or because all ports were busy.",
        _PINGS,
        not_drawn="for queries: who asks for servers that nobody uses",
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
        # Loads OpenSSL and more, which a node without pings need not.
        from peerwatch_exporter.sources.pings.mesh import Mesh  # noqa: PLC0415

        del sources
        self._is_enabled = config.pings.enabled
        self._servers = _rping_servers(config)
        self._mesh = Mesh(config.pings, servers=self._servers)
        self._rdma = _rdma(config, self._mesh)
        # Also when the collector is switched off while the exporter runs.
        self._finalizer = weakref.finalize(self, _leave, self._mesh, self._rdma, self._servers)

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
        if self._rdma is not None:
            self._rdma.start()
        yield from _families(self._mesh)
        if self._rdma is not None and self._servers is not None:
            yield from _rdma_families(self._rdma, self._servers)
        for problem in (self._mesh.problem, self._mesh.peers.problem):
            if problem is not None:
                raise _PeersMissing(
                    getattr(problem, "error_class", "other"), str(problem)
                ) from problem

    def close(self) -> None:
        """End the thread."""
        self._finalizer.detach()
        self._mesh.close()
        if self._rdma is not None:
            self._rdma.close()
        if self._servers is not None:
            self._servers.close()


def _rping_servers(config: ExporterConfig) -> RpingServers | None:
    if not (config.pings.enabled and config.pings.rdma):
        return None
    from peerwatch_exporter.sources.pings.rdma.servers import RpingServers  # noqa: PLC0415

    return RpingServers(config.pings)


def _rdma(config: ExporterConfig, mesh: Mesh) -> RdmaPings | None:
    if not (config.pings.enabled and config.pings.rdma):
        return None
    from peerwatch_exporter.sources.pings.rdma.mesh import RdmaPings  # noqa: PLC0415

    return RdmaPings(
        config.pings, lambda: mesh.peers.partners, mesh.totals, lambda: mesh.peers.secrets
    )


def _leave(mesh: Mesh, rdma: RdmaPings | None, servers: RpingServers | None) -> None:
    for each in (mesh, rdma, servers):
        if each is not None:
            each.leave()


def _rdma_families(rdma: RdmaPings, servers: RpingServers) -> Iterator[Family]:
    from peerwatch_exporter.sources.pings.rdma.rping import STATES  # noqa: PLC0415

    states, failures = family("ping_rdma_state"), family("ping_rdma_failures_total")
    for role, found in (("client", rdma.state), ("server", servers.state)):
        for state in STATES if found else ():
            states.add_metric((role, state), int(state == found))
    for key, number in sorted(rdma.failures.items()):
        failures.add_metric(key, number)
    sessions = family("ping_rdma_sessions_total")
    for result, number in servers.results.items():
        sessions.add_metric((result,), number)
    yield from (each for each in (states, failures, sessions) if each.rows)


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
