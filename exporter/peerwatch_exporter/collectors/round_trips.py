"""Round trips of TCP between this node and others, where it has ranks of training jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from peerwatch_common.metrics.spec import Family, MetricSpec
from peerwatch_exporter.catalog import family
from peerwatch_exporter.collector import register
from peerwatch_exporter.errors import NoData, PartialData, SourceMissing
from peerwatch_exporter.sources.host.connections import TooManyConnectionsError
from peerwatch_exporter.sources.host.netlink import GarbledAnswerError
from peerwatch_exporter.sources.host.round_trips import (
    LEAST_BYTES,
    MOST_PEERS_EACH,
    RoundTrips,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peerwatch_exporter.settings.config import ExporterConfig
    from peerwatch_exporter.sources import Sources
    from peerwatch_exporter.sources.host.connections import Connection

_LABELS = ("address", "peer")
SPECS = (
    MetricSpec(
        "host_tcp_round_trip_seconds",
        "gauge",
        "seconds",
        _LABELS,
        "How long what is sent from an address of this node to a peer's waits for its "
        "acknowledgement, queues on the way included: the kernel's smoothed round trip, mean of "
        f"connections by what they carried, those with {LEAST_BYTES // 1024} KiB and more in some "
        "5 s. Mean of the last mean_seconds. While ranks of training jobs live here; the "
        f"{MOST_PEERS_EACH} worst and the {MOST_PEERS_EACH} busiest peers.",
        "sock_diag, tcp_info tcpi_rtt",
        swings=True,
    ),
    MetricSpec(
        "host_tcp_least_round_trip_seconds",
        "gauge",
        "seconds",
        _LABELS,
        "The shortest round trip to the same peer since the exporter began: what the way there "
        "takes without queues.",
        "sock_diag, tcp_info tcpi_min_rtt (Linux 4.6)",
    ),
    MetricSpec(
        "host_tcp_acknowledged_bytes_total",
        "counter",
        "bytes",
        _LABELS,
        "What has arrived at the same peer since the exporter knows it: a pair that carries little "
        "of what its job sends says little about the way.",
        "sock_diag, tcp_info tcpi_bytes_acked",
    ),
)

# Three values for each scrape of 15 s; in between, the kernel smooths.
_PERIOD_SECONDS = 5.0
# Ticks of the clock may come a little early.
_REST_SECONDS = _PERIOD_SECONDS - 0.5
# Listing connections costs the kernel a scan of its whole table: so much of one CPU may be spent, a
# tenth of what the whole exporter takes (docs/benchmarks.md).
_SHARE_OF_A_CPU = 0.001
# 256 for each of 16 ranks; where there are more, it is said so.
_MOST_CONNECTIONS = 4096


@register(
    "round_trips",
    "round trips of TCP to the nodes that ranks talk to",
    interval_seconds=5,
    topic="Host",
    metrics=SPECS,
)
class RoundTripsCollector:
    """Publishes round trips to the peers of a node with ranks."""

    def __init__(
        self,
        config: ExporterConfig,  # noqa: ARG002
        sources: Sources,
        *,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._connections = sources.queries.connections
        self._ranks = sources.known_ranks
        self._monotonic = sources.monotonic
        self._cpu_clock = cpu_clock
        self._trips = RoundTrips()
        self._families: tuple[Family, ...] = ()
        self._problem: Exception | None = None
        self._last = -_PERIOD_SECONDS
        self._next = 0.0

    def collect(self) -> Iterator[Family]:
        """Yield the families of round trips.

        Raises
        ------
        NoData
            If no rank lives here, or this process may not list connections.
        PartialData
            At the end, if there are too many connections.
        OSError, GarbledAnswerError
            If the kernel's answer fails.
        """
        if self._connections is None:
            raise NoData("This node is files, and has no connections.")
        if not any(rank.is_alive for rank in self._ranks.all() or ()):
            self._families, self._problem, self._next = (), None, 0.0
            raise NoData("No rank of a training job lives on this node.")
        now = self._monotonic()
        if now >= self._next:
            start = self._cpu_clock()
            # If it cannot be read, what was is not published for ever, nor asked every second.
            self._families, self._next = (), now + _REST_SECONDS
            self._problem = self._read(self._connections, now)
            spent = self._cpu_clock() - start
            self._next = now + max(_REST_SECONDS, spent / _SHARE_OF_A_CPU)
        yield from self._families
        if isinstance(self._problem, TooManyConnectionsError):
            raise PartialData(str(self._problem)) from self._problem
        if self._problem is not None:
            raise self._problem.with_traceback(None)

    def _read(self, connections: Callable[[int], list[Connection]], now: float) -> Exception | None:
        problem = None
        try:
            found = connections(_MOST_CONNECTIONS)
        except TooManyConnectionsError as error:
            found, problem = error.found, error
        except (OSError, SourceMissing, GarbledAnswerError) as error:
            return error
        trips = self._trips.update(found, now - self._last)
        self._last = now
        mean, least, carried = (family(spec.name) for spec in SPECS)
        for trip in trips:
            mean.add_metric((trip.address, trip.peer), trip.seconds)
            if trip.least_seconds is not None:
                least.add_metric((trip.address, trip.peer), trip.least_seconds)
            carried.add_metric((trip.address, trip.peer), trip.carried_bytes)
        self._families = tuple(each for each in (mean, least, carried) if each.rows)
        return problem
